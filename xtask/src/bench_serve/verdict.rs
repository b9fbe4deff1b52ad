//! Medians over rounds, ratios between servers, and whether targets are met.

use super::server::Measured;

/// A server, and its result in each round.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) rounds: Vec<Measured>,
}

/// Measures all in turns, and drops the first turn of each.
pub(super) fn turns(
    names: impl Iterator<Item = &'static str>,
    rounds: usize,
    mut measure: impl FnMut(usize) -> anyhow::Result<Measured>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = names.map(|name| Row { name, rounds: Vec::new() }).collect();
    for round in 0..=rounds {
        for (index, row) in rows.iter_mut().enumerate() {
            let measured = measure(index)?;
            if round > 0 {
                row.rounds.push(measured);
            }
        }
    }
    Ok(rows)
}

/// A bound on the ratio of our server to another.
pub(super) struct Target {
    against: &'static str,
    bound: Bound,
}

enum Bound {
    RequestsAtLeast(f64),
    ProcessorAtMost(f64),
}

impl Target {
    /// Our requests per second, divided by the other's, must be at least this.
    pub(super) const fn requests_at_least(against: &'static str, ratio: f64) -> Self {
        Self { against, bound: Bound::RequestsAtLeast(ratio) }
    }

    /// Our CPU time per request, divided by the other's, must be at most this.
    pub(super) const fn processor_at_most(against: &'static str, ratio: f64) -> Self {
        Self { against, bound: Bound::ProcessorAtMost(ratio) }
    }
}

/// Prints the rows, with the ratios of our server, which is the first row, to each.
pub(super) fn print(rows: &[Row], targets: &[Target]) {
    let Some(ours) = rows.first() else { return };
    for row in rows {
        let ratios = Ratios::of(ours, row);
        let of = |measure: fn(&Measured) -> f64| median(row.rounds.iter().map(measure));
        println!(
            "  {:<22} {:>9.0} ({:>5.2})   load busy {:.2}   ours / it: {:.2} requests ({:.2}–{:.2}), {:.2} CPU time{}",
            row.name,
            of(|it| it.per_second),
            of(|it| it.cpu_us),
            of(|it| it.load_busy),
            ratios.requests,
            ratios.lowest,
            ratios.highest,
            ratios.processor,
            judge(row.name, &ratios, targets)
        );
    }
}

fn judge(name: &str, ratios: &Ratios, targets: &[Target]) -> String {
    let Some(target) = targets.iter().find(|target| target.against == name) else {
        return String::new();
    };
    let verdict = |is_met| if is_met { "yes" } else { "NO" };
    match target.bound {
        Bound::RequestsAtLeast(bound) => {
            format!("; requests >= {bound}: {}", verdict(ratios.requests >= bound))
        }
        Bound::ProcessorAtMost(bound) => {
            format!("; CPU time <= {bound}: {}", verdict(ratios.processor <= bound))
        }
    }
}

/// The ratios of our server to another: medians over the rounds, and extremes.
struct Ratios {
    requests: f64,
    lowest: f64,
    highest: f64,
    processor: f64,
}

impl Ratios {
    fn of(ours: &Row, other: &Row) -> Self {
        let pairs = || ours.rounds.iter().zip(&other.rounds);
        let requests = || pairs().map(|(ours, other)| ours.per_second / other.per_second);
        Self {
            requests: median(requests()),
            lowest: requests().fold(f64::INFINITY, f64::min),
            highest: requests().fold(0.0, f64::max),
            processor: median(pairs().map(|(ours, other)| ours.cpu_us / other.cpu_us)),
        }
    }
}

/// Returns the median; of an even number of values, the mean of the two in the middle.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        middle(half)
    } else {
        f64::midpoint(middle(half.wrapping_sub(1)), middle(half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let row = |name, per_second: [f64; 3]| {
            let rounds =
                per_second.map(|per_second| Measured { per_second, cpu_us: 1.0, load_busy: 0.5 });
            Row { name, rounds: rounds.to_vec() }
        };
        // The machine is twice as fast in the last round, which does not change the ratio.
        let ratios = Ratios::of(&row("ours", [10.0, 12.0, 22.0]), &row("it", [10.0, 10.0, 20.0]));
        assert!((ratios.requests - 1.1).abs() < 1e-9);
        assert!((ratios.lowest - 1.0).abs() < 1e-9 && (ratios.highest - 1.2).abs() < 1e-9);
    }

    #[test]
    fn each_server_has_as_many_turns_and_the_first_does_not_count() {
        let mut order = Vec::new();
        let rows = turns(["ours", "it"].into_iter(), 2, |index| {
            order.push(index);
            Ok(Measured { per_second: 1.0, cpu_us: 1.0, load_busy: 0.5 })
        });
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
        assert!(rows.unwrap().iter().all(|row| row.rounds.len() == 2));
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle() {
        let of = |values: &[f64]| median(values.iter().copied());
        assert!((of(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((of(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(of(&[]).is_nan());
    }

    #[test]
    fn a_target_is_met_or_not() {
        let with = |name, requests, processor| {
            let ratios = Ratios { requests, lowest: 0.0, highest: 9.0, processor };
            let targets =
                [Target::requests_at_least("it", 1.2), Target::processor_at_most("them", 0.5)];
            judge(name, &ratios, &targets)
        };
        assert_eq!(with("it", 1.2, 9.0), "; requests >= 1.2: yes");
        assert_eq!(with("it", 1.19, 0.0), "; requests >= 1.2: NO");
        assert_eq!(with("them", 0.0, 0.5), "; CPU time <= 0.5: yes");
        assert_eq!(with("them", 9.0, 0.51), "; CPU time <= 0.5: NO");
        assert_eq!(with("other", 0.1, 9.0), "");
    }
}
