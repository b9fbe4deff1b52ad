//! `tidegate completions` and `tidegate man`: what the arguments say about themselves.

use crate::args::Args;
use crate::output::Found;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Print what makes a shell complete tidegate's arguments
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Print the manual page
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The command that it is about; all of tidegate if not said
    command: Option<String>,
}

impl Completions {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        // The generator panics when it cannot write, so it does not write to a pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Args::command(), "tidegate", &mut script);
        out.write_all(&script)?;
        Ok(Found::Fine)
    }
}

impl Man {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        let mut all = Args::command();
        all.build();
        let about = match &self.command {
            None => all,
            Some(name) => match all.find_subcommand(name) {
                Some(command) => command.clone(),
                None => anyhow::bail!("there is no command `{name}`"),
            },
        };
        clap_mangen::Man::new(about).render(out)?;
        Ok(Found::Fine)
    }
}
