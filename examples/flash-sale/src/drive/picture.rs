//! The results of all sales, as a picture: SVG, readable on a light and on a dark page.
//!
//! Always   The same numbers give the same picture. Widths are shares of the attempts, latencies are on a logarithmic axis.

use std::fmt::Write as _;

use super::table::ms;
use super::{Report, Row, access_name};

const WIDTH: f64 = 1000.0;
/// Left and right edge of the bars.
const BARS: (f64, f64) = (186.0, 546.0);
/// Left edge of the column of sold items.
const SOLD: f64 = 558.0;
/// Left and right edge of the latencies.
const WAITS: (f64, f64) = (730.0, 890.0);
const TOP: f64 = 118.0;
const BAR: f64 = 16.0;
const STEP: f64 = 21.0;
const GAP: f64 = 14.0;
/// The marks of the latency axis.
const WAIT_MS: [(u32, &str); 5] =
    [(1, "1 ms"), (10, "10"), (100, "100"), (1_000, "1 s"), (10_000, "10 s")];

/// Replies and their colours, of medium lightness so that they are visible on light and dark pages.
const PARTS: [(&str, &str); 6] = [
    ("sold", "#2a9d4a"),
    ("oversold", "#d4342c"),
    ("conflict", "#e08a1e"),
    ("sold out", "#9aa1ab"),
    ("asks too often", "#a45bd6"),
    ("busy", "#1a7fd4"),
];

/// The colours of text and grid follow the page.
const STYLE: &str = "<style>\n\
    text { font: 13px system-ui, sans-serif; fill: #24292f; }\n\
    .title { font-size: 15px; font-weight: 600; }\n\
    .way { font-weight: 600; }\n\
    .small { font-size: 12px; fill: #57606a; }\n\
    .bad { fill: #d4342c; font-weight: 600; }\n\
    .grid { stroke: #d0d7de; }\n\
    .wait { stroke: #57606a; stroke-width: 3; }\n\
    .dot { fill: #24292f; }\n\
    @media (prefers-color-scheme: dark) {\n  \
    text { fill: #e6edf3; }\n  .small { fill: #9198a1; }\n  .bad { fill: #ff6a61; }\n  \
    .grid { stroke: #30363d; }\n  .wait { stroke: #8b949e; }\n  .dot { fill: #e6edf3; }\n}\n\
    </style>\n";

pub(super) fn draw(report: &Report) -> String {
    let tops = tops(&report.rows);
    let bottom = tops.last().map_or(TOP, |top| top + BAR);
    let title = format!(
        "{} attempts at the same moment to buy one of {}, from {}",
        report.buyers.buyers, report.stock, report.database
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n\
         <title>{}</title>\n{STYLE}",
        bottom + 50.0,
        escape(&title)
    );
    text(&mut svg, (16.0, 26.0), "title", "start", &title);
    let limits = format!(
        "limits: {} for all, a wait of up to a second; {} for each buyer",
        report.rate, report.per_buyer
    );
    text(&mut svg, (16.0, 46.0), "small", "start", &limits);
    legend(&mut svg);
    grid(&mut svg, bottom);
    for (index, (row, top)) in report.rows.iter().zip(&tops).enumerate() {
        let is_first = index == 0 || report.rows[index - 1].way != row.way;
        if is_first {
            text(&mut svg, (16.0, top + 13.0), "way", "start", row.way.name());
        }
        text(&mut svg, (BARS.0 - 10.0, top + 13.0), "small", "end", access_name(row.access));
        shares(&mut svg, row, *top);
        sold(&mut svg, row, *top);
        wait(&mut svg, row, *top);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the upper edge of each row. Rows of one way are close together.
fn tops(rows: &[Row]) -> Vec<f64> {
    let mut top = TOP;
    let mut tops = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            top += if rows[index - 1].way == row.way { STEP } else { STEP + GAP };
        }
        tops.push(top);
    }
    tops
}

fn legend(svg: &mut String) {
    let mut x = 16.0;
    for ((name, colour), letters) in PARTS.iter().zip(PARTS.iter().map(|(name, _)| name.len())) {
        rectangle(svg, (x, 62.0), (12.0, 12.0), colour, name);
        text(svg, (x + 18.0, 73.0), "", "start", name);
        x += 34.0 + 7.2 * f64::from(u32::try_from(letters).unwrap_or(0));
    }
}

fn grid(svg: &mut String, bottom: f64) {
    let head = TOP - 14.0;
    text(svg, (BARS.0, head), "small", "start", "replies");
    text(svg, (SOLD, head), "small", "start", "sold (success)");
    text(svg, (WAITS.0, head), "small", "start", "until the answer: p50 to p99, ms");
    for (wait_ms, label) in WAIT_MS {
        let x = wait_x(u64::from(wait_ms) * 1_000);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>",
            TOP - 6.0,
            bottom + 6.0
        );
        text(svg, (x, bottom + 22.0), "small", "middle", label);
    }
    let note = "success: sold, of all attempts that found one left. The wait is that of attempts that the \
                database answered.";
    text(svg, (16.0, bottom + 42.0), "small", "start", note);
}

#[expect(clippy::cast_precision_loss, reason = "a picture has fewer digits")]
fn shares(svg: &mut String, row: &Row, top: f64) {
    let counts = row.result.answers.counts;
    let over = u64::try_from(row.result.tally.oversold()).unwrap_or(0);
    let parts =
        [counts.sold - over, over, counts.conflict, counts.sold_out, counts.too_many, counts.busy];
    let all: u64 = parts.iter().sum();
    let mut x = BARS.0;
    for (count, (name, colour)) in parts.into_iter().zip(PARTS) {
        let width = (BARS.1 - BARS.0) * count as f64 / all.max(1) as f64;
        if count > 0 {
            rectangle(svg, (x, top), (width, BAR), colour, &format!("{name}: {count}"));
        }
        x += width;
    }
}

fn sold(svg: &mut String, row: &Row, top: f64) {
    let (counts, tally) = (row.result.answers.counts, row.result.tally);
    let success =
        counts.success_percent().map_or(String::new(), |percent| format!(" ({percent:.0} %)"));
    let (class, label) = match tally.oversold() {
        0 => ("", format!("{}{success}", counts.sold)),
        over => ("bad", format!("{} + {over} too many", tally.orders - over)),
    };
    text(svg, (SOLD, top + 13.0), class, "start", &label);
}

fn wait(svg: &mut String, row: &Row, top: f64) {
    let answers = &row.result.answers;
    let (Some(p50), Some(p99)) = (answers.served_us(50.0), answers.served_us(99.0)) else { return };
    let (y, from, to) = (top + BAR / 2.0, wait_x(p50), wait_x(p99));
    let _ = writeln!(
        svg,
        "<line class=\"wait\" x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\"/>\n\
         <circle class=\"dot\" cx=\"{from:.1}\" cy=\"{y:.1}\" r=\"4\"/>\n\
         <circle class=\"dot\" cx=\"{to:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
    );
    let numbers = format!("{} – {}", ms(Some(p50)), ms(Some(p99)));
    text(svg, (WAITS.1 + 14.0, top + 13.0), "", "start", &numbers);
}

/// Returns the position of a latency; one beyond the axis is at its end.
#[expect(clippy::cast_precision_loss, reason = "a picture has fewer digits")]
fn wait_x(us: u64) -> f64 {
    let decades = (us.max(1) as f64 / 1_000.0).log10().clamp(0.0, 4.0);
    WAITS.0 + (WAITS.1 - WAITS.0) * decades / 4.0
}

fn rectangle(
    svg: &mut String,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    colour: &str,
    title: &str,
) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\">\
         <title>{title}</title></rect>"
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{words}</text>"
    );
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::result::{ReplyStats, SaleResult};
    use super::*;
    use crate::database::Tally;
    use crate::drive::BuyerGroup;
    use crate::reply::SaleReply;
    use crate::shop::Access;
    use crate::way::Way;
    use tidegate::Span;

    fn row(way: Way, access: Access, sold: i64) -> Row {
        let mut answers = ReplyStats::new().unwrap();
        for order in 0..sold {
            answers.add(SaleReply::Sold { order, left: 0 }, Span::from_millis(20));
        }
        answers.add(SaleReply::SoldOut, Span::from_millis(900));
        Row {
            way,
            access,
            result: SaleResult {
                answers,
                visits: 0,
                tally: Tally { count: 2, sale: 2, orders: sold },
            },
        }
    }

    #[test]
    fn oversold_items_are_drawn_and_text_is_escaped() {
        let report = Report {
            database: "a <b>".to_owned(),
            buyers: BuyerGroup { buyers: 4, again_of_ten: 0 },
            stock: 2,
            rate: "1/s".to_owned(),
            per_buyer: "1/s".to_owned(),
            rows: vec![row(Way::Naive, Access::Open, 3), row(Way::Condition, Access::Guarded, 2)],
        };
        let svg = draw(&report);
        assert_eq!(svg, draw(&report));
        assert!(svg.contains("2 + 1 too many") && svg.contains("oversold: 1"), "{svg}");
        assert!(svg.contains("2 (100 %)") && svg.contains("a &lt;b&gt;"), "{svg}");
    }

    #[test]
    fn a_latency_beyond_the_axis_is_at_its_end() {
        assert!((wait_x(0) - WAITS.0).abs() < f64::EPSILON);
        assert!((wait_x(u64::MAX) - WAITS.1).abs() < f64::EPSILON);
        assert!(wait_x(10_000) < wait_x(11_000));
    }
}
