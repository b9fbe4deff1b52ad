//! The formats of metrics: `OpenMetrics` for collectors that accept it, and the older text format for all others.
//!
//! Invariant Both formats have the same series and values. Only the descriptions differ: in the text format a counter has the name of
//!           its series, and there is no type `info`.

use http::HeaderValue;
use http::header::{ACCEPT, HeaderMap};

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Converts `open_metrics` to the format that the collector accepts. Returns the content type and the text.
pub(super) fn negotiated(headers: &HeaderMap, open_metrics: String) -> (HeaderValue, String) {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.any(|value| value.contains("application/openmetrics-text")) {
        (OPEN_METRICS, open_metrics)
    } else {
        (TEXT, as_text(&open_metrics))
    }
}

fn as_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 256);
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|described| described.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_format_describes_series_by_their_names() {
        let open_metrics = "# HELP a_keys Keys.\n# TYPE a_keys gauge\na_keys{limit=\"# x\"} 1\n\
                            # HELP a_asked Asked.\n# TYPE a_asked counter\na_asked_total 2\n\
                            # HELP a_build Which.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n# EOF\n";
        let text = "# HELP a_keys Keys.\n# TYPE a_keys gauge\na_keys{limit=\"# x\"} 1\n\
                    # HELP a_asked_total Asked.\n# TYPE a_asked_total counter\na_asked_total 2\n\
                    # HELP a_build_info Which.\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n";
        assert_eq!(as_text(open_metrics), text);
    }
}
