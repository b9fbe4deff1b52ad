use tidegate::{Denied, limit};

#[limit]
fn no_rule() -> Result<(), Denied> {
    Ok(())
}

#[limit(20)]
fn number() -> Result<(), Denied> {
    Ok(())
}

#[limit("20/s", ky = 1)]
fn unknown() -> Result<(), Denied> {
    Ok(())
}

#[limit("20/s", else = 1)]
#[limit("100/min", else = 2)]
fn two_fallbacks() -> u32 {
    0
}

fn main() {}
