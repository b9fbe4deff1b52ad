//! The results of all sales, as a table for a terminal.

use std::fmt::Write as _;

use super::{Report, Row, access_name};

const HEAD: [&str; 14] = [
    "way",
    "limits",
    "visits",
    "sold",
    "oversold",
    "sold out",
    "conflict",
    "too many",
    "busy",
    "success",
    "p50 ms",
    "p99 ms",
    "refused p99",
    "all in ms",
];

const NOTES: &str = "
visits    attempts that reached the database
oversold  orders beyond the stock
success   sold, of all attempts that found one left
p50, p99  latency of attempts that the database answered, including the wait for a token
";

pub(super) fn print(report: &Report) -> String {
    let mut text = format!(
        "{} attempts to buy at the same moment, {} of ten by a buyer that has tried before; stock {}, from {}\n\
         limits: {} for all buyers, with a wait of up to a second; {} for each buyer\n\n",
        report.buyers.buyers,
        report.buyers.again_of_ten,
        report.stock,
        report.database,
        report.rate,
        report.per_buyer
    );
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(report.rows.iter().map(cells));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Names to the left, numbers to the right.
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                1 => write!(text, "  {cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text + NOTES
}

fn cells(row: &Row) -> [String; HEAD.len()] {
    let (answers, tally) = (&row.result.answers, row.result.tally);
    let counts = answers.counts;
    [
        row.way.to_string(),
        access_name(row.access).to_owned(),
        row.result.visits.to_string(),
        counts.sold.to_string(),
        tally.oversold().to_string(),
        counts.sold_out.to_string(),
        counts.conflict.to_string(),
        counts.too_many.to_string(),
        counts.busy.to_string(),
        counts.success_percent().map_or("-".to_owned(), |percent| format!("{percent:.1} %")),
        ms(answers.served_us(50.0)),
        ms(answers.served_us(99.0)),
        ms(answers.refused_us(99.0)),
        ms(Some(answers.took.as_micros())),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
pub(super) fn ms(us: Option<u64>) -> String {
    us.map_or("-".to_owned(), |us| match us as f64 / 1_000.0 {
        ms if ms < 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    })
}
