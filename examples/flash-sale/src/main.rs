//! `flash-sale`: starts what the command line asks for, and ends the process.

use std::process::ExitCode;

use clap::Parser as _;
use flash_sale::options::{Command, Options};
use flash_sale::{drive, serve};

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let ended = match options.command {
        Some(Command::Serve(options)) => serve::run(options).await,
        Some(Command::Drive(options)) => drive::run(options).await,
        None => drive::run(options.drive).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the one place that says what went wrong")]
            {
                eprintln!("flash-sale: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
