//! The five ways of selling, by name.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

/// How an item is taken out of the stock; [`selling`](crate::selling) has the statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Read, check in the program, write. Oversells.
    Naive,
    /// Optimistic: write if `sale` is still what was read.
    OldValue,
    /// Optimistic: write if `version` is still what was read.
    Version,
    /// One statement: `SET sale = sale + 1 WHERE sale < count`.
    Condition,
    /// Pessimistic: lock the row (`SELECT … FOR UPDATE`), check, write.
    ForUpdate,
}

impl Way {
    /// All ways, in the order of the table.
    pub const ALL: [Self; 5] =
        [Self::Naive, Self::OldValue, Self::Version, Self::Condition, Self::ForUpdate];

    /// The ways that never oversell.
    pub const SAFE: [Self; 4] = [Self::OldValue, Self::Version, Self::Condition, Self::ForUpdate];

    /// Returns the name in paths and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::OldValue => "old-value",
            Self::Version => "version",
            Self::Condition => "condition",
            Self::ForUpdate => "for-update",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|way| way.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no way of selling called {name:?}; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_paths_and_on_the_command_line() {
        for way in Way::ALL {
            assert_eq!(way.name().parse(), Ok(way));
            assert_eq!(<Way as ValueEnum>::from_str(way.name(), false), Ok(way));
        }
    }

    #[test]
    fn the_error_of_an_unknown_way_lists_all_ways() {
        let error = "quantum".parse::<Way>().unwrap_err();
        assert!(error.contains("\"quantum\"") && error.contains("for-update"), "{error}");
    }
}
