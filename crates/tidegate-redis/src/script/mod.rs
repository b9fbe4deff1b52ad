//! The scripts: a clock, twins, a driver and a last word, put together once and called by their hash.
//!
//! Always   Each language in its own file: the Lua is in `lua/`, and nothing of it is here but names and formats.
//!          A script is the same text on every node of the same release, so that Redis keeps it once.

pub(crate) mod codec;
pub(crate) mod key_name;
pub(crate) mod stored_value;

use std::sync::LazyLock;

/// A script that Redis knows by its hash.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// How a twin keeps its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// So many numbers.
    Cell { state: usize },
    /// Rows of so many numbers.
    Rows { width: usize },
}

/// A Lua twin of an algorithm.
#[derive(Debug)]
pub(crate) struct Twin {
    /// As the algorithm's other files are called.
    pub(crate) stem: &'static str,
    text: &'static str,
    /// Of what else it is made.
    needs: &'static [&'static str],
    /// How many numbers it takes besides the verb: what the cost amounts to, and the rule's.
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

/// All of them. A stem that core knows and this list does not is found by a test.
static TWINS: [Twin; 11] = twins!(
    "calendar"(6, Shape::Cell { state: 2 }) needs ["driver/window"],
    "concurrency"(3, Shape::Rows { width: 5 }) needs ["driver/search", "driver/sums", "driver/room"],
    "fixed"(4, Shape::Cell { state: 2 }) needs ["driver/window"],
    "leaky"(7, Shape::Cell { state: 2 }) needs ["token_bucket"],
    "nginx"(5, Shape::Cell { state: 2 }) needs [],
    "queue"(9, Shape::Cell { state: 2 }) needs [],
    "sliding"(3, Shape::Cell { state: 3 }) needs ["driver/window"],
    "sliding_log"(4, Shape::Rows { width: 2 }) needs ["driver/search", "driver/sums", "driver/room"],
    "smooth"(5, Shape::Cell { state: 5 }) needs [],
    "token_bucket"(7, Shape::Cell { state: 2 }) needs [],
    "warmup"(7, Shape::Cell { state: 4 }) needs [],
);

static ONES: LazyLock<Vec<Script>> = LazyLock::new(|| TWINS.iter().map(one).collect());
static LENDS: LazyLock<Vec<Script>> =
    LazyLock::new(|| TWINS.iter().map(|twin| ended(twin, lua!("driver/lend"))).collect());
static ALL: LazyLock<Script> = LazyLock::new(all);
static BUCKET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[lua!("driver/now"), lua!("token_bucket"), lua!("driver/bucket")])
});
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[
        lua!("driver/now"),
        lua!("driver/search"),
        lua!("driver/sums"),
        lua!("driver/room"),
        lua!("command/release"),
    ])
});
static REGISTER: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/register")]));
static TIME: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/time")]));
static FORGET: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/forget")]));
static EXAMINE: LazyLock<Script> = LazyLock::new(|| Script::new(&[lua!("command/examine")]));
static PROBE: LazyLock<Script> = LazyLock::new(|| Script::new(&[lua!("command/probe")]));
static THROTTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/throttle")]));
static SWAP: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[lua!("driver/now"), lua!("command/swap")]));

impl Twin {
    /// The twin of the algorithm with this stem.
    pub(crate) fn of(stem: &str) -> Option<&'static Self> {
        TWINS.iter().find(|twin| twin.stem == stem)
    }

    /// Decides one request.
    pub(crate) fn script(&self) -> &'static Script {
        let place = TWINS.iter().position(|twin| twin.stem == self.stem);
        &ONES[place.expect("there are no twins but those in the list")]
    }

    /// Lends out of it.
    pub(crate) fn lends(&self) -> &'static Script {
        let place = TWINS.iter().position(|twin| twin.stem == self.stem);
        &LENDS[place.expect("there are no twins but those in the list")]
    }

    /// The driver, made for this twin.
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

/// Decides several requests as one.
pub(crate) fn all_together() -> &'static Script {
    &ALL
}

/// Charges a bucket of whole microseconds.
pub(crate) fn bucket() -> &'static Script {
    &BUCKET
}

/// Gives a place back.
pub(crate) fn release() -> &'static Script {
    &RELEASE
}

/// Says what a limit's rule is.
pub(crate) fn register() -> &'static Script {
    &REGISTER
}

/// Forgets a key.
pub(crate) fn forget() -> &'static Script {
    &FORGET
}

/// Says what time it is.
pub(crate) fn time() -> &'static Script {
    &TIME
}

/// Tries every command that the others use.
pub(crate) fn examine() -> &'static Script {
    &EXAMINE
}

/// Writes, for nothing but to know whether it can.
pub(crate) fn probe() -> &'static Script {
    &PROBE
}

/// Decides about a rate that comes with the request.
pub(crate) fn throttle() -> &'static Script {
    &THROTTLE
}

/// Puts a state in the place of another.
pub(crate) fn swap() -> &'static Script {
    &SWAP
}

fn one(twin: &Twin) -> Script {
    ended(twin, lua!("driver/one"))
}

/// A twin, its driver, and what is done with them.
fn ended(twin: &Twin, last: &str) -> Script {
    let driver = twin.driver();
    let last = last.replace("TWIN", twin.stem);
    let mut parts = vec![lua!("driver/now")];
    parts.extend(twin.needs);
    parts.extend([twin.text, &driver, &last]);
    Script::new(&parts)
}

fn all() -> Script {
    let drivers: Vec<String> = TWINS.iter().map(Twin::driver).collect();
    let named = TWINS.iter().map(|twin| format!("{0} = {0}_at", twin.stem));
    let last = lua!("driver/all").replace("TWINS", &named.collect::<Vec<_>>().join(", "));
    // Every part once, and what others need before them.
    let mut parts = vec![
        lua!("driver/now"),
        lua!("driver/search"),
        lua!("driver/sums"),
        lua!("driver/room"),
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

    /// For `EVAL`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// For `EVALSHA`.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }
}
