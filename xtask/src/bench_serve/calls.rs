//! Runs `tidegate bench` against a server, and reads its report.

use std::path::Path;

use anyhow::Context as _;

use super::CONNECTIONS;
use super::server::{Measured, Server, load, words};
use super::verdict::median;

/// A server, and the arguments of `tidegate bench` for it.
pub(super) struct Call<'a> {
    pub(super) name: &'static str,
    pub(super) server: &'a Server,
    pub(super) target: &'static str,
    pub(super) flags: Vec<String>,
}

impl Call<'_> {
    /// Returns the arguments of `tidegate bench`, without rate and duration.
    pub(super) fn line(&self, keys: u32) -> Vec<String> {
        let target = self.target.replace("PORT", &self.server.port.to_string());
        let rest = format!("--connections {CONNECTIONS} --keys {keys} --threads 1 --format json");
        [vec!["bench".to_owned(), target], words(&rest), self.flags.clone()].concat()
    }
}

pub(super) fn ours_http(server: &Server) -> Call<'_> {
    let flags = words("--limit bench");
    Call { name: "ours", server, target: "http://127.0.0.1:PORT", flags }
}

pub(super) fn ours_grpc(server: &Server) -> Call<'_> {
    let flags = words("--domain bench --descriptor key={key}");
    Call { name: "ours", server, target: "grpc://127.0.0.1:PORT", flags }
}

pub(super) fn crab_http(server: &Server) -> Call<'_> {
    let body = r#"{"key":"{key}","max_burst":1000000,"count_per_period":1000000,"period":1}"#;
    let flags = vec!["--body".to_owned(), body.to_owned()];
    Call { name: "throttlecrab", server, target: "http://127.0.0.1:PORT/throttle", flags }
}

/// Measures the maximum rate with a load of one second.
fn measure(tidegate: &Path, call: &Call<'_>, keys: u32) -> anyhow::Result<Measured> {
    call.server.measure(|_| {
        let how = words("--rate max --duration 1");
        let text = load(tidegate, &[call.line(keys), how].concat())?;
        let per_second = number(&text, "achieved_per_second")?;
        all_answered(&text, call.name)?;
        Ok((per_second, number(&text, "answered")?))
    })
}

/// Fails if any request was answered with an error, or not at all, because the figures would be wrong.
pub(super) fn all_answered(json: &str, name: &str) -> anyhow::Result<()> {
    for what in ["errors", "lost", "unsent"] {
        anyhow::ensure!(number(json, what)? == 0.0, "{name}: not all were answered: {json}");
    }
    Ok(())
}

/// Returns the first number with this name, which occurs once in the searched part.
pub(super) fn number(json: &str, name: &str) -> anyhow::Result<f64> {
    let after = json.split(&format!("\"{name}\": ")).nth(1);
    let text = after.and_then(|text| text.split([',', '\n', '}']).next());
    text.and_then(|text| text.trim().parse().ok())
        .with_context(|| format!("no {name} in what tidegate bench says: {json}"))
}

/// Measures the maximum rate several times, and returns the median.
pub(super) fn peak(tidegate: &Path, call: &Call<'_>, keys: u32) -> anyhow::Result<f64> {
    let peaks: anyhow::Result<Vec<Measured>> =
        (0..3).map(|_| measure(tidegate, call, keys)).collect();
    Ok(median(peaks?.iter().map(|measured| measured.per_second)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_name() {
        let json = "{\n  \"answered\": 12,\n  \"latency_us\": {\n    \"p99\": 34\n  }\n}";
        assert_eq!(number(json, "answered").ok(), Some(12.0));
        assert_eq!(number(json, "p99").ok(), Some(34.0));
        assert!(number(json, "p50").is_err());
    }
}
