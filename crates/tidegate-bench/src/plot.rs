//! Line charts as SVG, with logarithmic or linear axes, readable on light and dark pages.
//!
//! Always   Lines differ in colour and in marker, and the legend is in the order of their last values, so that no reader
//!          has to tell colours apart.
//! Always   The same values give the same bytes.

use std::fmt::Write as _;

/// A line of points: with positive coordinates on logarithmic axes, and without negative ones on linear axes.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether it is a reference and not a measurement: grey, dashed, and last in the legend.
    pub is_reference: bool,
}

impl Series {
    /// Makes a measured line.
    pub fn measured(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, is_reference: false }
    }

    /// Makes a reference line.
    pub fn reference(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { is_reference: true, ..Self::measured(name, points) }
    }
}

/// A chart.
pub struct Plot {
    /// Text above the chart.
    pub title: String,
    /// Text below the horizontal axis.
    pub x_label: String,
    /// Text beside the vertical axis.
    pub y_label: String,
    /// The scale of both axes.
    pub scale: Scale,
    /// The lines: at least one, with at least one point.
    pub series: Vec<Series>,
}

/// How values are mapped to positions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Logarithmic, from one power of ten to another.
    Logarithmic,
    /// Linear, from zero to somewhat above the largest value.
    Plain,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 636.0;
const TOP: f64 = 44.0;
/// Height below the chart, for the numbers and the label of the axis.
const FOOT: f64 = 56.0;
/// Maximum number of markers on a line.
const MARKERS_MAX: usize = 20;

/// Colours of medium brightness, which are visible on black and on white.
const COLOURS: [&str; 6] = ["#1a7fd4", "#2a9d4a", "#d1661a", "#a45bd6", "#c9405e", "#8a8f98"];
const GREY: &str = "#8a8f98";

/// The colours of text and grid follow the page.
const STYLE: &str = "<style>\n\
    text { font: 13px system-ui, sans-serif; fill: #24292f; }\n\
    .title { font-size: 15px; font-weight: 600; }\n\
    .grid { stroke: #d0d7de; }\n\
    .axis { stroke: #57606a; }\n\
    .line { fill: none; stroke-width: 2; }\n\
    .dashed { stroke-dasharray: 7 5; }\n\
    @media (prefers-color-scheme: dark) {\n  \
    text { fill: #e6edf3; }\n  .grid { stroke: #30363d; }\n  .axis { stroke: #8b949e; }\n}\n\
    </style>\n";

impl Plot {
    /// Returns the SVG file.
    pub fn svg(&self) -> String {
        panels(std::slice::from_ref(self), 480.0)
    }

    fn draw(&self, svg: &mut String, height: f64) {
        let axes = Axes::around(&self.series, self.scale, height - FOOT);
        text(svg, (LEFT, 24.0), "start", "title", &self.title);
        axes.draw(svg);
        text(svg, (f64::midpoint(LEFT, RIGHT), height - 16.0), "middle", "", &self.x_label);
        upright(svg, f64::midpoint(TOP, axes.bottom), &self.y_label);
        let mut by_last: Vec<(usize, &Series)> = self.series.iter().enumerate().collect();
        let order = |series: &Series| (series.is_reference, -last(series));
        by_last.sort_by(|(_, a), (_, b)| {
            let ((a_kind, a), (b_kind, b)) = (order(a), order(b));
            a_kind.cmp(&b_kind).then(a.total_cmp(&b))
        });
        for (row, (index, series)) in (0_u32..).zip(by_last) {
            draw(svg, &axes, index, series);
            let y = TOP + 14.0 + 24.0 * f64::from(row);
            if series.is_reference {
                polyline(svg, "line dashed", GREY, &[18.0, 38.0].map(|x| (RIGHT + x, y - 4.0)));
            } else {
                marker(svg, index, (RIGHT + 28.0, y - 4.0));
            }
            text(svg, (RIGHT + 42.0, y), "start", "", &series.name);
        }
    }
}

/// Draws several charts of the same height in one file, one below the other.
pub fn panels(plots: &[Plot], height: f64) -> String {
    let heights = plots.iter().scan(0.0, |top, _| Some(std::mem::replace(top, *top + height)));
    let whole = plots.iter().map(|_| height).sum::<f64>();
    let title = plots.first().map_or("", |plot| &plot.title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {whole}\" \
         role=\"img\">\n<title>{}</title>\n{STYLE}",
        escape(title)
    );
    for (plot, top) in plots.iter().zip(heights) {
        append(&mut svg, &format!("<g transform=\"translate(0 {top})\">"));
        plot.draw(&mut svg, height);
        append(&mut svg, "</g>");
    }
    svg.push_str("</svg>\n");
    svg
}

fn last(series: &Series) -> f64 {
    series.points.last().map_or(0.0, |(_, y)| *y)
}

/// The ranges of the axes, and the values with grid lines.
struct Axes {
    scale: Scale,
    bottom: f64,
    x: Ticks,
    y: Ticks,
}

/// Tick values and their labels; the axis extends from the first to the last.
type Ticks = Vec<(f64, String)>;

impl Axes {
    fn around(series: &[Series], scale: Scale, bottom: f64) -> Self {
        let points = || series.iter().flat_map(|series| &series.points);
        let (x, y) = (points().map(|(x, _)| *x), points().map(|(_, y)| *y));
        match scale {
            Scale::Logarithmic => Self { scale, bottom, x: decades(x), y: decades(y) },
            Scale::Plain => Self { scale, bottom, x: steps(x), y: steps(y) },
        }
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let share = |value: f64, ticks: &Ticks| {
            let value = self.scaled(value);
            let (low, high) = match (ticks.first(), ticks.last()) {
                (Some((low, _)), Some((high, _))) => (self.scaled(*low), self.scaled(*high)),
                _ => (0.0, 1.0),
            };
            (value - low) / (high - low)
        };
        (
            LEFT + share(x, &self.x) * (RIGHT - LEFT),
            self.bottom - share(y, &self.y) * (self.bottom - TOP),
        )
    }

    fn scaled(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Logarithmic => value.log10(),
            Scale::Plain => value,
        }
    }

    fn draw(&self, svg: &mut String) {
        for (value, name) in &self.x {
            let (x, _) = self.place((*value, 1.0));
            line(svg, "grid", (x, TOP), (x, self.bottom));
            text(svg, (x, self.bottom + 20.0), "middle", "", name);
        }
        for (value, name) in &self.y {
            let (_, y) = self.place((1.0, *value));
            line(svg, "grid", (LEFT, y), (RIGHT, y));
            text(svg, (LEFT - 8.0, y + 4.0), "end", "", name);
        }
        line(svg, "axis", (LEFT, self.bottom), (RIGHT, self.bottom));
        line(svg, "axis", (LEFT, TOP), (LEFT, self.bottom));
    }
}

/// Returns powers of ten, from the one below the smallest value to the one above the largest.
#[expect(clippy::cast_possible_truncation, reason = "powers of ten of what was measured are small")]
fn decades(values: impl Iterator<Item = f64> + Clone) -> Ticks {
    // The logarithm of 10^7 may come out as 7.0000001, which must not add a decade.
    let low = values.clone().fold(f64::INFINITY, f64::min).log10() + 0.001;
    let high = values.fold(0.0, f64::max).log10() - 0.001;
    let (low, high) = (low.floor() as i32, high.ceil() as i32);
    (low..=high.max(low + 1)).map(|power| (10_f64.powi(power), number(power))).collect()
}

/// Returns four to ten steps of 1, 2 or 5 times a power of ten, from zero to at least the largest value.
fn steps(values: impl Iterator<Item = f64>) -> Ticks {
    let most = values.fold(0.0, f64::max).max(1.0);
    let sizes = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4];
    let size = sizes.into_iter().find(|size| most / size <= 10.0).unwrap_or(most);
    let mut ticks: Ticks = vec![(0.0, "0".to_owned())];
    let mut value = 0.0;
    while value < most {
        value += size;
        ticks.push((value, value.to_string()));
    }
    ticks
}

/// Formats a power of ten for people: 10^4 is 10 k.
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
    if series.is_reference {
        return polyline(svg, "line dashed", GREY, &places);
    }
    polyline(svg, "line", colour(index), &places);
    // Of many points only some have a marker, at different positions on each line.
    let every = places.len().div_ceil(MARKERS_MAX).max(1);
    let first = if every > 1 { index * every / COLOURS.len() } else { 0 };
    for place in places.into_iter().skip(first).step_by(every) {
        marker(svg, index, place);
    }
}

fn polyline(svg: &mut String, class: &str, colour: &str, places: &[(f64, f64)]) {
    let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let points = points.join(" ");
    append(svg, &format!("<polyline class=\"{class}\" stroke=\"{colour}\" points=\"{points}\"/>"));
}

/// Draws a circle, a square or a diamond.
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

/// Writes text beside the vertical axis, from bottom to top.
fn upright(svg: &mut String, y: f64, text: &str) {
    let x = 18.0;
    let at = format!("x=\"{x:.1}\" y=\"{y:.1}\" transform=\"rotate(-90 {x:.1} {y:.1})\"");
    append(svg, &format!("<text {at} text-anchor=\"middle\">{}</text>", escape(text)));
}

fn append(svg: &mut String, element: &str) {
    writeln!(svg, "{element}").expect("writing to a string cannot fail");
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
            scale: Scale::Logarithmic,
            series: vec![
                Series::measured("ours", points(40.0)),
                Series::measured("Mutex<HashMap>", points(400.0)),
            ],
        }
    }

    #[test]
    fn the_axes_end_at_powers_of_ten() {
        let axes = Axes::around(&plot().series, Scale::Logarithmic, 424.0);
        assert_eq!((axes.x.len(), axes.y.len()), (6, 3));
        assert_eq!(axes.place((100.0, 10.0)), (LEFT, 424.0));
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
    fn linear_axes_begin_at_zero_and_end_beyond_the_largest_value() {
        let names = |most: f64| steps([most].into_iter()).into_iter().map(|(_, name)| name);
        assert_eq!(names(9.5).collect::<Vec<_>>().join(" "), "0 1 2 3 4 5 6 7 8 9 10");
        assert_eq!(names(90.0).collect::<Vec<_>>().join(" "), "0 10 20 30 40 50 60 70 80 90");
        assert_eq!(names(1_050.0).collect::<Vec<_>>().join(" "), "0 200 400 600 800 1000 1200");
        let axes = Axes::around(&plot().series, Scale::Plain, 300.0);
        assert_eq!(axes.place((0.0, 0.0)), (LEFT, 300.0));
    }

    #[test]
    fn what_the_others_are_held_against_is_dashed_and_comes_last() {
        let mut plot = plot();
        plot.series.push(Series::reference("the most", vec![(100.0, 900.0), (1e7, 900.0)]));
        let svg = plot.svg();
        assert_eq!(svg.matches("line dashed").count(), 2, "in the plot and in the legend");
        assert!(svg.find(">ours<") < svg.find(">the most<"));
    }

    #[test]
    fn panels_lie_one_below_the_other() {
        let svg = panels(&[plot(), plot()], 300.0);
        assert!(svg.contains("viewBox=\"0 0 860 600\"") && svg.contains("translate(0 300)"));
    }

    #[test]
    fn ticks_are_numbers_people_write() {
        assert_eq!([2, 4, 7].map(number), ["100", "10 k", "10 M"]);
    }
}
