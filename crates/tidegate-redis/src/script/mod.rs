//! The Lua scripts, assembled from the files in `lua/` and run by their hash.
//!
//! A script consists of the clock, the Lua twin of an algorithm, the driver for the twin's kind of state, and the command.
//!
//! Invariant  All Lua is in `lua/`; this module only fills in names and formats.
//! Invariant  All nodes of one release have the same text for a script, so that Redis caches it once.

pub(crate) mod codec;
pub(crate) mod key_name;
pub(crate) mod stored_value;

use std::sync::LazyLock;

/// A script and its hash.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// How a twin keeps its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A fixed number of doubles.
    Cell { state: usize },
    /// Any number of rows of a fixed number of doubles.
    Rows { width: usize },
}

/// A Lua twin of an algorithm.
#[derive(Debug)]
pub(crate) struct Twin {
    /// The name that all files of the algorithm share.
    pub(crate) stem: &'static str,
    text: &'static str,
    /// The files that the twin depends on.
    needs: &'static [&'static str],
    /// How many numbers describe the cost and the rule.
    args: usize,
    pub(crate) shape: Shape,
}

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("../../lua/", $name, ".lua"))
    };
}

macro_rules! twins {
    ($($stem:literal($args:literal, $shape:expr) needs [$($need:literal),*]),+ $(,)?) => {
        [$(Twin {
            stem: $stem,
            text: lua!($stem),
            needs: &[$(lua!($need)),*],
            args: $args,
            shape: $shape,
        }),+]
    };
}

/// All twins. A test checks that every algorithm of core has one.
static TWINS: [Twin; 11] = twins!(
    "calendar"(6, Shape::Cell { state: 2 }) needs ["driver/window"],
    "concurrency"(3, Shape::Rows { width: 5 }) needs ["driver/search", "driver/sums", "driver/compact"],
    "fixed"(4, Shape::Cell { state: 2 }) needs ["driver/window"],
    "leaky"(7, Shape::Cell { state: 2 }) needs ["token_bucket"],
    "nginx"(5, Shape::Cell { state: 2 }) needs [],
    "queue"(9, Shape::Cell { state: 2 }) needs [],
    "sliding"(3, Shape::Cell { state: 3 }) needs ["driver/window"],
    "sliding_log"(4, Shape::Rows { width: 2 }) needs ["driver/search", "driver/sums", "driver/compact"],
    "smooth"(5, Shape::Cell { state: 5 }) needs [],
    "token_bucket"(7, Shape::Cell { state: 2 }) needs [],
    "warmup"(7, Shape::Cell { state: 4 }) needs [],
);

static DECIDE: LazyLock<Vec<Script>> =
    LazyLock::new(|| TWINS.iter().map(|twin| command(twin, lua!("driver/one"))).collect());
static LEND: LazyLock<Vec<Script>> =
    LazyLock::new(|| TWINS.iter().map(|twin| command(twin, lua!("driver/lend"))).collect());
/// Decides several requests, all charged or none.
pub(crate) static DECIDE_ALL: LazyLock<Script> = LazyLock::new(all_twins);
/// Charges a bucket whose tick is a microsecond.
pub(crate) static BUCKET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[lua!("driver/now"), lua!("token_bucket"), lua!("driver/bucket")])
});
/// Releases a permit.
pub(crate) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[
        lua!("driver/now"),
        lua!("driver/search"),
        lua!("driver/sums"),
        lua!("driver/compact"),
        lua!("command/release"),
    ])
});
/// Reads and publishes the rule of a limit.
pub(crate) static REGISTER: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/register")]));
/// Returns the time.
pub(crate) static TIME: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/time")]));
/// Deletes the state of a key.
pub(crate) static FORGET: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/forget")]));
/// Tries every command of the other scripts.
pub(crate) static EXAMINE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("command/examine")]));
/// Tests whether Redis accepts writes.
pub(crate) static PROBE: LazyLock<Script> = LazyLock::new(|| Script::new(&[lua!("command/probe")]));
/// Decides under a rate that comes with the request.
pub(crate) static THROTTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/throttle")]));
/// Replaces a state.
pub(crate) static SWAP: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/swap")]));

impl Twin {
    /// Returns the twin of the algorithm with this stem.
    pub(crate) fn of(stem: &str) -> Option<&'static Self> {
        TWINS.iter().find(|twin| twin.stem == stem)
    }

    /// Returns the script that decides one request.
    pub(crate) fn decide(&self) -> &'static Script {
        &DECIDE[self.index()]
    }

    /// Returns the script that grants and takes back leases.
    pub(crate) fn lend(&self) -> &'static Script {
        &LEND[self.index()]
    }

    fn index(&self) -> usize {
        let index = TWINS.iter().position(|twin| twin.stem == self.stem);
        index.expect("all twins are in the list")
    }

    /// Returns the driver for this twin.
    fn driver(&self) -> String {
        let names = |letter: char, count: usize| {
            let names: Vec<String> = (1..=count).map(|n| format!("{letter}{n}")).collect();
            names.join(", ")
        };
        let args = names('a', self.args);
        let format = "d".repeat(self.args);
        let template = match self.shape {
            Shape::Cell { state } => lua!("driver/cell")
                .replace("STATE_FORMAT", &"d".repeat(state))
                .replace("STATE", &names('s', state))
                .replace("AFTER", &names('n', state)),
            Shape::Rows { width } => lua!("driver/rows")
                .replace("ROW_FORMAT", &"d".repeat(width))
                .replace("WIDTH", &width.to_string()),
        };
        template.replace("ARGS_FORMAT", &format).replace("ARGS", &args).replace("TWIN", self.stem)
    }
}

/// Assembles a twin, its driver and a command.
fn command(twin: &Twin, command: &str) -> Script {
    let driver = twin.driver();
    let command = command.replace("TWIN", twin.stem);
    let mut parts = vec![lua!("driver/now")];
    parts.extend(twin.needs);
    parts.extend([twin.text, &driver, &command]);
    Script::new(&parts)
}

/// Assembles all twins and the command that decides several requests.
fn all_twins() -> Script {
    let drivers: Vec<String> = TWINS.iter().map(Twin::driver).collect();
    let named = TWINS.iter().map(|twin| format!("{0} = {0}_at", twin.stem));
    let last = lua!("driver/all").replace("TWINS", &named.collect::<Vec<_>>().join(", "));
    // Every file once, and after the files that it needs.
    let mut parts = vec![
        lua!("driver/now"),
        lua!("driver/search"),
        lua!("driver/sums"),
        lua!("driver/compact"),
        lua!("driver/window"),
        lua!("token_bucket"),
    ];
    parts.extend(TWINS.iter().map(|twin| twin.text).filter(|text| *text != lua!("token_bucket")));
    parts.extend(drivers.iter().map(String::as_str));
    parts.push(&last);
    Script::new(&parts)
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let lines = parts.iter().flat_map(|part| part.lines());
        let code = lines.filter(|line| !line.trim_start().starts_with("--"));
        let text = code.flat_map(|line| [line, "\n"]).collect::<String>();
        let hash = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, hash }
    }

    /// Returns the text, for `EVAL`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the hash, for `EVALSHA`.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }
}
