//! What was measured, for people and for programs.

use super::Plan;
use super::load::Measured;
use super::schedule::Rate;
use super::tally::Tally;
use crate::args::Format;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::io::{Result, Write};

const PERCENTILES: &[(&str, f64)] = &[("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];
/// Of the longest bar.
const BAR: u64 = 50;
/// Of what was asked for; less is told.
const ACHIEVED_PERCENT_MIN: u64 = 95;
/// Later than this at the 99th percentile, and the generator is what is measured.
const LATE_US_MAX: u64 = 1_000;

pub(super) fn write(
    plan: &Plan,
    measured: &Measured,
    format: Format,
    out: &mut impl Write,
) -> Result<()> {
    match format {
        Format::Text => write_text(plan, measured, out),
        Format::Short => writeln!(out, "{}", short(measured)),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &json(plan, measured))?;
            writeln!(out)
        }
    }
}

fn per_second(measured: &Measured) -> u64 {
    let answered_us = u128::from(measured.tally.answered) * 1_000_000;
    let per_second = answered_us.checked_div(measured.elapsed.as_micros()).unwrap_or(0);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

fn short(measured: &Measured) -> String {
    let Tally { answered, refused, lost, unsent, latency_us, .. } = &measured.tally;
    format!(
        "{}/s, {answered} answered, {} errors, p50 {} ms, p99 {} ms, max {} ms",
        per_second(measured),
        refused + lost + unsent,
        ms(latency_us.value_at_percentile(50.0)),
        ms(latency_us.value_at_percentile(99.0)),
        ms(latency_us.max())
    )
}

fn write_text(plan: &Plan, measured: &Measured, out: &mut impl Write) -> Result<()> {
    let Plan { target, question, keys, connections, pipeline, .. } = plan;
    let (asked, kind) = match plan.rate {
        Rate::PerSecond(rate) => (format!("{rate}/s"), "open loop"),
        Rate::Max => ("as many as there can be".to_owned(), "closed loop"),
    };
    let cut = if measured.is_interrupted { ", stopped" } else { "" };
    let seconds = measured.elapsed.as_secs_f64();
    writeln!(out, "{target}  {}", question.text)?;
    writeln!(
        out,
        "{}, {}, pipeline {pipeline}, {kind}, {seconds:.1} s{cut}\n",
        counted(*keys, "key"),
        counted(*connections as u64, "connection"),
    )?;
    let Tally { sent, answered, allowed, denied, refused, lost, unsent, .. } = &measured.tally;
    writeln!(out, "asked for   {asked}")?;
    writeln!(out, "achieved    {}/s", per_second(measured))?;
    writeln!(out, "sent        {sent}")?;
    writeln!(out, "answered    {answered}: {allowed} allowed, {denied} denied, {refused} errors")?;
    if lost + unsent > 0 {
        writeln!(out, "unanswered  {}: {lost} sent, {unsent} never sent", lost + unsent)?;
    }
    if let Some(complaint) = &measured.tally.complaint {
        writeln!(out, "first error {complaint}")?;
    }
    write_latency(plan, &measured.tally.latency_us, out)?;
    notes(plan, measured).iter().try_for_each(|note| writeln!(out, "\n{note}"))
}

fn write_latency(plan: &Plan, latency_us: &Histogram<u64>, out: &mut impl Write) -> Result<()> {
    if latency_us.is_empty() {
        return Ok(());
    }
    let from = match plan.rate {
        Rate::PerSecond(_) => "from when a request was due",
        Rate::Max => "from when a request was sent",
    };
    writeln!(out, "\nlatency in ms, {from} to its answer")?;
    for (name, percentile) in PERCENTILES {
        writeln!(out, "{name:<6} {:>10}", ms(latency_us.value_at_percentile(*percentile)))?;
    }
    writeln!(out, "max    {:>10}\n", ms(latency_us.max()))?;
    let bars = bars(latency_us);
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(1);
    for (to_us, count) in bars {
        // What is there at all has a bar.
        let length = usize::try_from((count * BAR).div_ceil(most)).unwrap_or(0);
        let line = format!("to {:>10} {count:>10} {}", ms(to_us), "#".repeat(length));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// How many there are up to each power of two, from the first that has any to the last.
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

/// What a reader of the figures should know.
fn notes(plan: &Plan, measured: &Measured) -> Vec<String> {
    let (tally, mut notes) = (&measured.tally, Vec::new());
    if tally.answered == 0 {
        notes.push("Nothing was answered.".to_owned());
    } else if tally.answered == tally.refused {
        notes.push("Every answer was an error.".to_owned());
    }
    if tally.lost + tally.unsent > 0 && tally.answered > 0 {
        let what =
            "What was not answered is in the latencies as if it had been waited for until the end.";
        notes.push(what.to_owned());
    }
    let Rate::PerSecond(rate) = plan.rate else {
        let what = "Closed loop: while the server stalls nothing is sent, so that few requests see it. For \
                    latency, give --rate a number.";
        notes.push(what.to_owned());
        return notes;
    };
    if tally.answered > 0 && per_second(measured) < rate.saturating_mul(ACHIEVED_PERCENT_MIN) / 100
    {
        let what = "Less than was asked for: latencies are those of a queue that grows. Lower --rate, or give \
                    more --connections or --pipeline.";
        notes.push(what.to_owned());
    }
    let late_us = tally.late_us.value_at_percentile(99.0);
    if late_us > LATE_US_MAX {
        notes.push(format!(
            "This machine was late itself: 1 % of the requests were sent {} ms or more after they could \
             have been. That is in the latencies too.",
            ms(late_us)
        ));
    }
    notes
}

fn json(plan: &Plan, measured: &Measured) -> Value {
    let tally = &measured.tally;
    let percentiles = |histogram: &Histogram<u64>| {
        let mut all = serde_json::Map::new();
        for (name, percentile) in PERCENTILES {
            all.insert((*name).to_owned(), histogram.value_at_percentile(*percentile).into());
        }
        all.insert("max".to_owned(), histogram.max().into());
        Value::Object(all)
    };
    let bars: Vec<Value> = bars(&tally.latency_us)
        .into_iter()
        .map(|(to_us, count)| json!({ "to_us": to_us, "count": count }))
        .collect();
    json!({
        "target": plan.target.to_string(),
        "question": plan.question.text,
        "keys": plan.keys,
        "connections": plan.connections,
        "pipeline": plan.pipeline,
        "loop": match plan.rate { Rate::PerSecond(_) => "open", Rate::Max => "closed" },
        "asked_per_second": match plan.rate { Rate::PerSecond(rate) => Some(rate), Rate::Max => None },
        "achieved_per_second": per_second(measured),
        "elapsed_ms": u64::try_from(measured.elapsed.as_millis()).unwrap_or(u64::MAX),
        "is_interrupted": measured.is_interrupted,
        "sent": tally.sent,
        "answered": tally.answered,
        "allowed": tally.allowed,
        "denied": tally.denied,
        "errors": tally.refused,
        "lost": tally.lost,
        "unsent": tally.unsent,
        "first_error": tally.complaint,
        "latency_us": percentiles(&tally.latency_us),
        "sent_late_us": percentiles(&tally.late_us),
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
    fn bars_leave_no_gap_and_nobody_out() {
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
