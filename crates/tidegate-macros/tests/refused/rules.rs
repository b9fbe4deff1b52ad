use tidegate::{Denied, limit};

#[limit("100/s bust 20")]
fn misspelt() -> Result<(), Denied> {
    Ok(())
}

#[limit("10/d", key = user)]
fn unit(user: &str) -> Result<&str, Denied> {
    Ok(user)
}

#[limit("1/day calendar in Asia/Shangai")]
fn zone() -> Result<(), Denied> {
    Ok(())
}

#[limit("20/s", wait = "5m")]
fn wait() -> Result<(), Denied> {
    Ok(())
}

fn main() {
    let _ = (misspelt(), unit("alice"), zone(), wait());
}
