//! A plot with two logarithmic axes, as SVG, readable on a light and on a dark page.
//!
//! Always   Lines differ in colour and in marker, and the legend is in the order of their last
//!          values, so that nobody has to tell colours apart.

use std::fmt::Write as _;

/// A line of points, each with a positive x and y.
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// What is drawn.
pub struct Plot {
    /// Above the plot.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    /// At least one, with at least one point.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 636.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 424.0;

/// In the middle between black and white, so that they stand out on both.
const COLOURS: [&str; 6] = ["#1a7fd4", "#2a9d4a", "#d1661a", "#a45bd6", "#c9405e", "#8a8f98"];

/// The colours of text and grid follow the page.
const STYLE: &str = "<style>\n\
    text { font: 13px system-ui, sans-serif; fill: #24292f; }\n\
    .title { font-size: 15px; font-weight: 600; }\n\
    .grid { stroke: #d0d7de; }\n\
    .axis { stroke: #57606a; }\n\
    .line { fill: none; stroke-width: 2; }\n\
    @media (prefers-color-scheme: dark) {\n  \
    text { fill: #e6edf3; }\n  .grid { stroke: #30363d; }\n  .axis { stroke: #8b949e; }\n}\n\
    </style>\n";

impl Plot {
    /// The whole file.
    pub fn svg(&self) -> String {
        let axes = Axes::around(&self.series);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\">\n<title>{}</title>\n{STYLE}",
            escape(&self.title)
        );
        text(&mut svg, (LEFT, 24.0), "start", "title", &self.title);
        axes.draw(&mut svg);
        text(&mut svg, (f64::midpoint(LEFT, RIGHT), HEIGHT - 16.0), "middle", "", &self.x_label);
        upright(&mut svg, &self.y_label);
        let mut by_last: Vec<(usize, &Series)> = self.series.iter().enumerate().collect();
        by_last.sort_by(|(_, a), (_, b)| last(b).total_cmp(&last(a)));
        for (row, (index, series)) in (0_u32..).zip(by_last) {
            draw(&mut svg, &axes, index, series);
            let y = TOP + 14.0 + 24.0 * f64::from(row);
            marker(&mut svg, index, (RIGHT + 28.0, y - 4.0));
            text(&mut svg, (RIGHT + 42.0, y), "start", "", &series.name);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn last(series: &Series) -> f64 {
    series.points.last().map_or(0.0, |(_, y)| *y)
}

/// Which power of ten is at which end of the axes.
struct Axes {
    x: (i32, i32),
    y: (i32, i32),
}

impl Axes {
    /// From the power of ten below the smallest value to the one above the largest.
    fn around(series: &[Series]) -> Self {
        let points = || series.iter().flat_map(|series| &series.points);
        Self { x: decades(points().map(|(x, _)| *x)), y: decades(points().map(|(_, y)| *y)) }
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let share = |value: f64, (low, high): (i32, i32)| {
            (value.log10() - f64::from(low)) / f64::from(high - low)
        };
        (LEFT + share(x, self.x) * (RIGHT - LEFT), BOTTOM - share(y, self.y) * (BOTTOM - TOP))
    }

    fn draw(&self, svg: &mut String) {
        for power in self.x.0..=self.x.1 {
            let (x, _) = self.place((10_f64.powi(power), 1.0));
            line(svg, "grid", (x, TOP), (x, BOTTOM));
            text(svg, (x, BOTTOM + 20.0), "middle", "", &number(power));
        }
        for power in self.y.0..=self.y.1 {
            let (_, y) = self.place((1.0, 10_f64.powi(power)));
            line(svg, "grid", (LEFT, y), (RIGHT, y));
            text(svg, (LEFT - 8.0, y + 4.0), "end", "", &number(power));
        }
        line(svg, "axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        line(svg, "axis", (LEFT, TOP), (LEFT, BOTTOM));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "powers of ten of what was measured are small")]
fn decades(values: impl Iterator<Item = f64> + Clone) -> (i32, i32) {
    // A thousandth of a decade is not worth a decade of its own: 10^7 may come out as 7.0000001.
    let low = values.clone().fold(f64::INFINITY, f64::min).log10() + 0.001;
    let high = values.fold(0.0, f64::max).log10() - 0.001;
    let (low, high) = (low.floor() as i32, high.ceil() as i32);
    (low, high.max(low + 1))
}

/// 10^4 as people write it: 10 k.
fn number(power: i32) -> String {
    match power {
        0..3 => 10_f64.powi(power).to_string(),
        3..6 => format!("{} k", 10_f64.powi(power - 3)),
        6..9 => format!("{} M", 10_f64.powi(power - 6)),
        _ => format!("1e{power}"),
    }
}

fn draw(svg: &mut String, axes: &Axes, index: usize, series: &Series) {
    let places: Vec<(f64, f64)> = series.points.iter().map(|point| axes.place(*point)).collect();
    let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let (points, colour) = (points.join(" "), colour(index));
    append(svg, &format!("<polyline class=\"line\" stroke=\"{colour}\" points=\"{points}\"/>"));
    for place in places {
        marker(svg, index, place);
    }
}

/// A circle, a square or a diamond.
fn marker(svg: &mut String, index: usize, (x, y): (f64, f64)) {
    let colour = colour(index);
    let shape = match index % 3 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"),
        kind => {
            let turn = if kind == 1 { 0 } else { 45 };
            format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\" \
                 transform=\"rotate({turn} {x:.1} {y:.1})\"/>",
                x - 3.5,
                y - 3.5
            )
        }
    };
    append(svg, &shape);
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

fn line(svg: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let ends = format!("x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
    append(svg, &format!("<line class=\"{class}\" {ends}/>"));
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, class: &str, text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let at = format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{class}");
    append(svg, &format!("<text {at}>{}</text>", escape(text)));
}

/// Beside the vertical axis, from bottom to top.
fn upright(svg: &mut String, text: &str) {
    let (x, y) = (18.0, f64::midpoint(TOP, BOTTOM));
    let at = format!("x=\"{x:.1}\" y=\"{y:.1}\" transform=\"rotate(-90 {x:.1} {y:.1})\"");
    append(svg, &format!("<text {at} text-anchor=\"middle\">{}</text>", escape(text)));
}

fn append(svg: &mut String, element: &str) {
    writeln!(svg, "{element}").expect("a string takes everything");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let points = |ns: f64| (2..=7).map(|power| (10_f64.powi(power), ns)).collect();
        Plot {
            title: "cost & keys".to_owned(),
            x_label: "live keys".to_owned(),
            y_label: "ns".to_owned(),
            series: vec![
                Series { name: "ours".to_owned(), points: points(40.0) },
                Series { name: "Mutex<HashMap>".to_owned(), points: points(400.0) },
            ],
        }
    }

    #[test]
    fn the_axes_end_at_powers_of_ten() {
        let axes = Axes::around(&plot().series);
        assert_eq!((axes.x, axes.y), ((2, 7), (1, 3)));
        assert_eq!(axes.place((100.0, 10.0)), (LEFT, BOTTOM));
        assert_eq!(axes.place((1e7, 1e3)), (RIGHT, TOP));
    }

    #[test]
    fn every_line_is_named_and_the_slowest_comes_first() {
        let svg = plot().svg();
        let place = |name: &str| svg.find(name).expect("it is in the legend");
        assert!(place("Mutex&lt;HashMap&gt;") < place(">ours<"));
        assert!(svg.contains("cost &amp; keys"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn ticks_are_numbers_people_write() {
        assert_eq!([2, 4, 7].map(number), ["100", "10 k", "10 M"]);
    }
}
