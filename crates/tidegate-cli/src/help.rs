//! `tidegate completions` and `tidegate man`: shell completions and manual pages, generated from the arguments.

use crate::output::CommandStatus;
use clap::Command;
use clap_complete::Shell;
use std::io::Write;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Shell to complete in
    shell: Shell,
}

/// Print a manual page
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Command to describe [default: tidegate itself]
    command: Option<String>,
}

impl Completions {
    pub(crate) fn run(
        &self,
        mut tidegate: Command,
        out: &mut impl Write,
    ) -> anyhow::Result<CommandStatus> {
        // The generator panics when it cannot write, so it writes to memory and not to a pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut tidegate, "tidegate", &mut script);
        out.write_all(&script)?;
        Ok(CommandStatus::Success)
    }
}

impl Man {
    pub(crate) fn run(
        &self,
        mut tidegate: Command,
        out: &mut impl Write,
    ) -> anyhow::Result<CommandStatus> {
        tidegate.build();
        let described = match &self.command {
            None => tidegate,
            Some(name) => match tidegate.find_subcommand(name) {
                Some(command) => command.clone(),
                None => anyhow::bail!("there is no command `{name}`"),
            },
        };
        clap_mangen::Man::new(described).render(out)?;
        Ok(CommandStatus::Success)
    }
}
