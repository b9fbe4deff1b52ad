use std::future::Future;
use tidegate::{Denied, limit};

#[limit("20/s")]
const fn constant() -> Result<(), Denied> {
    Ok(())
}

#[limit("20/s")]
extern "C" fn foreign() -> Result<(), Denied> {
    Ok(())
}

#[limit("20/s")]
fn future() -> impl Future<Output = Result<(), Denied>> {
    async { Ok(()) }
}

trait Declared {
    #[limit("20/s")]
    fn declared(&self) -> Result<(), Denied>;
}

#[limit("20/s")]
struct Structure;

#[limit("20/s")]
fn main() -> Result<(), Denied> {
    Ok(())
}
