use tidegate::limit;

#[limit("20/s")]
fn plain() -> u32 {
    7
}

#[limit("20/s")]
fn nothing() {}

#[limit("20/s")]
async fn later() -> Option<u32> {
    None
}

struct Failure;

#[limit("20/s")]
fn other_error() -> Result<u32, Failure> {
    Ok(7)
}

type Alias = Result<(), Failure>;

#[limit("20/s")]
fn alias() -> Alias {
    Ok(())
}

#[limit("20/s")]
fn opaque() -> impl Iterator<Item = u32> {
    0..7
}

#[limit("20/s", else = "none")]
fn other_type() -> u32 {
    7
}

fn main() {}
