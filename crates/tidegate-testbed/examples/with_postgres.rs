//! Runs a command with a PostgreSQL of its own, whose URL is in the environment: `with_postgres NAME COMMAND…`.
#![expect(clippy::print_stderr, reason = "a program that says how it is called")]

use std::env;
use std::process::{Command, ExitCode};

use tidegate_testbed::PostgresServer;

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1);
    let (Some(name), Some(program)) = (words.next(), words.next()) else {
        eprintln!("with_postgres NAME COMMAND…: NAME is the variable that gets the URL");
        return ExitCode::from(2);
    };
    let server = PostgresServer::start();
    let ended = Command::new(&program).args(words).env(name, server.url()).status();
    match ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{} does not start: {error}", program.to_string_lossy());
            ExitCode::FAILURE
        }
    }
}
