//! Prints the result of a run, for people or for programs.

use super::Plan;
use super::load::LoadResult;
use super::schedule::Rate;
use super::stats::LoadStats;
use crate::flags::Format;
use crate::output::write_json;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::io::{Result, Write};
use tidegate_server::escape::Escaped;

const PERCENTILES: &[(&str, f64)] = &[("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];
/// Length of the longest bar, in characters.
const BAR: u64 = 50;
/// Below this share of the requested rate, the report says so.
const ACHIEVED_PERCENT_MIN: u64 = 95;
/// If the generator is later than this at the 99th percentile, the report says so: it then measures itself.
const LATE_US_MAX: u64 = 1_000;

pub(super) fn write(
    plan: &Plan,
    measured: &LoadResult,
    format: Format,
    out: &mut impl Write,
) -> Result<()> {
    match format {
        Format::Text => write_text(plan, measured, out),
        Format::Short => writeln!(out, "{}", short(measured)),
        Format::Json => write_json(&json(plan, measured), out),
    }
}

fn per_second(measured: &LoadResult) -> u64 {
    let answered_us = u128::from(measured.stats.answered) * 1_000_000;
    let per_second = answered_us.checked_div(measured.elapsed.as_micros()).unwrap_or(0);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

fn short(measured: &LoadResult) -> String {
    let LoadStats { answered, errors, lost, unsent, latency_us, .. } = &measured.stats;
    format!(
        "{}/s, {answered} answered, {} errors, p50 {} ms, p99 {} ms, max {} ms",
        per_second(measured),
        errors + lost + unsent,
        ms(latency_us.value_at_percentile(50.0)),
        ms(latency_us.value_at_percentile(99.0)),
        ms(latency_us.max())
    )
}

fn write_text(plan: &Plan, measured: &LoadResult, out: &mut impl Write) -> Result<()> {
    let Plan { target, request, keys, connections, pipeline, .. } = plan;
    let (asked, kind) = match plan.rate {
        Rate::PerSecond(rate) => (format!("{rate}/s"), "open loop"),
        Rate::Max => ("max".to_owned(), "closed loop"),
    };
    let cut = if measured.is_interrupted { ", interrupted" } else { "" };
    let seconds = measured.elapsed.as_secs_f64();
    writeln!(out, "{target}  {}", request.text)?;
    writeln!(
        out,
        "{}, {}, pipeline {pipeline}, {kind}, {seconds:.1} s{cut}\n",
        counted(*keys, "key"),
        counted(*connections as u64, "connection"),
    )?;
    let LoadStats { sent, answered, allowed, denied, errors, lost, unsent, .. } = &measured.stats;
    writeln!(out, "requested   {asked}")?;
    writeln!(out, "achieved    {}/s", per_second(measured))?;
    writeln!(out, "sent        {sent}")?;
    writeln!(out, "answered    {answered}: {allowed} allowed, {denied} denied, {errors} errors")?;
    if lost + unsent > 0 {
        writeln!(out, "unanswered  {}: {lost} sent, {unsent} never sent", lost + unsent)?;
    }
    if let Some(first_error) = &measured.stats.first_error {
        writeln!(out, "first error {}", Escaped::new(first_error.as_bytes()))?;
    }
    write_latency(plan, &measured.stats.latency_us, out)?;
    notes(plan, measured).iter().try_for_each(|note| writeln!(out, "\n{note}"))
}

fn write_latency(plan: &Plan, latency_us: &Histogram<u64>, out: &mut impl Write) -> Result<()> {
    if latency_us.is_empty() {
        return Ok(());
    }
    let from = match plan.rate {
        Rate::PerSecond(_) => "from the time a request was due",
        Rate::Max => "from the time a request was sent",
    };
    writeln!(out, "\nlatency in ms, {from} to its reply")?;
    for (name, percentile) in PERCENTILES {
        writeln!(out, "{name:<6} {:>10}", ms(latency_us.value_at_percentile(*percentile)))?;
    }
    writeln!(out, "max    {:>10}\n", ms(latency_us.max()))?;
    let bars = bars(latency_us);
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(1);
    for (to_us, count) in bars {
        // Rounds up, so that every count above zero has a bar.
        let length = usize::try_from((count * BAR).div_ceil(most)).unwrap_or(0);
        let line = format!("to {:>10} {count:>10} {}", ms(to_us), "#".repeat(length));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Counts latencies up to each power of two, from the first bar that is not empty to the last.
fn bars(latency_us: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut bars: Vec<(u64, u64)> = Vec::new();
    for value in latency_us.iter_recorded() {
        let to_us = value.value_iterated_to().max(1).next_power_of_two();
        let mut last = bars.last().map_or(to_us / 2, |(last, _)| *last);
        while last < to_us {
            last = (last * 2).max(1);
            bars.push((last, 0));
        }
        if let Some((_, count)) = bars.last_mut() {
            *count += value.count_since_last_iteration();
        }
    }
    bars
}

/// Returns remarks on how to read the figures.
fn notes(plan: &Plan, measured: &LoadResult) -> Vec<String> {
    let (stats, mut notes) = (&measured.stats, Vec::new());
    if stats.answered == 0 {
        notes.push("No request was answered.".to_owned());
    } else if stats.answered == stats.errors {
        notes.push("Every reply was an error.".to_owned());
    }
    if stats.lost + stats.unsent > 0 && stats.answered > 0 {
        let what = "Requests without a reply are in the latencies as if their reply had come at the end of the run.";
        notes.push(what.to_owned());
    }
    let Rate::PerSecond(rate) = plan.rate else {
        let what = "Closed loop: while the server stalls, no requests are sent, so that few of them show the stall. To \
                    measure latency, set --rate to a number.";
        notes.push(what.to_owned());
        return notes;
    };
    if stats.answered > 0 && per_second(measured) < rate.saturating_mul(ACHIEVED_PERCENT_MIN) / 100
    {
        let what = "The requested rate was not reached, so that the latencies are those of a growing queue. Lower --rate, \
                    or raise --connections or --pipeline.";
        notes.push(what.to_owned());
    }
    let late_us = stats.late_us.value_at_percentile(99.0);
    if late_us > LATE_US_MAX {
        notes.push(format!(
            "This machine was late itself: 1 % of the requests were sent at least {} ms after they could \
             have been. The latencies include that delay.",
            ms(late_us)
        ));
    }
    notes
}

fn json(plan: &Plan, measured: &LoadResult) -> Value {
    let stats = &measured.stats;
    let percentiles = |histogram: &Histogram<u64>| {
        let mut all = serde_json::Map::new();
        for (name, percentile) in PERCENTILES {
            all.insert((*name).to_owned(), histogram.value_at_percentile(*percentile).into());
        }
        all.insert("max".to_owned(), histogram.max().into());
        Value::Object(all)
    };
    let bars: Vec<Value> = bars(&stats.latency_us)
        .into_iter()
        .map(|(to_us, count)| json!({ "to_us": to_us, "count": count }))
        .collect();
    json!({
        "target": plan.target.to_string(),
        "question": plan.request.text,
        "keys": plan.keys,
        "connections": plan.connections,
        "pipeline": plan.pipeline,
        "loop": match plan.rate { Rate::PerSecond(_) => "open", Rate::Max => "closed" },
        "asked_per_second": match plan.rate { Rate::PerSecond(rate) => Some(rate), Rate::Max => None },
        "achieved_per_second": per_second(measured),
        "elapsed_ms": u64::try_from(measured.elapsed.as_millis()).unwrap_or(u64::MAX),
        "is_interrupted": measured.is_interrupted,
        "sent": stats.sent,
        "answered": stats.answered,
        "allowed": stats.allowed,
        "denied": stats.denied,
        "errors": stats.errors,
        "lost": stats.lost,
        "unsent": stats.unsent,
        "first_error": stats.first_error,
        "latency_us": percentiles(&stats.latency_us),
        "sent_late_us": percentiles(&stats.late_us),
        "histogram": bars,
    })
}

fn ms(us: u64) -> String {
    format!("{}.{:03}", us / 1_000, us % 1_000)
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_no_gap_and_count_every_request() {
        let mut latency_us = Histogram::new_with_max(1_000_000, 3).unwrap();
        for (us, count) in [(1, 3), (100, 5), (128, 2), (129, 1), (900, 4)] {
            latency_us.saturating_record_n(us, count);
        }
        let bars = bars(&latency_us);
        let edges: Vec<u64> = bars.iter().map(|(to_us, _)| *to_us).collect();
        assert_eq!(edges, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        assert_eq!(bars[7], (128, 7));
        assert_eq!(bars.iter().map(|(_, count)| count).sum::<u64>(), latency_us.len());
    }

    #[test]
    fn milliseconds_have_three_digits() {
        assert_eq!(
            (ms(0), ms(1_002), ms(60_000_000)),
            ("0.000".to_owned(), "1.002".to_owned(), "60000.000".to_owned())
        );
    }
}
