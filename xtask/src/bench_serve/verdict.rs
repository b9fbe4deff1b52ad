//! Medians of rounds, ratios between them, and whether a target is met.

use super::server::Measured;

/// A name, and what came of each of its rounds.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) rounds: Vec<Measured>,
}

/// Lets all take turns, and forgets the first one of each.
pub(super) fn turns(
    names: impl Iterator<Item = &'static str>,
    rounds: usize,
    mut measure: impl FnMut(usize) -> anyhow::Result<Measured>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = names.map(|name| Row { name, rounds: Vec::new() }).collect();
    for round in 0..=rounds {
        for (place, row) in rows.iter_mut().enumerate() {
            let measured = measure(place)?;
            if round > 0 {
                row.rounds.push(measured);
            }
        }
    }
    Ok(rows)
}

/// What a ratio of requests must at least be.
pub(super) struct Target {
    pub(super) against: &'static str,
    pub(super) at_least: f64,
}

/// Prints the rows, and ours, which is the first one, in relation to each.
pub(super) fn print(rows: &[Row], targets: &[Target]) {
    let Some(ours) = rows.first() else { return };
    for row in rows {
        let ratios = Ratios::of(ours, row);
        let of = |measure: fn(&Measured) -> f64| median(row.rounds.iter().map(measure));
        println!(
            "  {:<22} {:>9.0} ({:>5.2})   load busy {:.2}   ours / it: {:.2} requests ({:.2}–{:.2}), {:.2} processor{}",
            row.name,
            of(|it| it.per_second),
            of(|it| it.cpu_us),
            of(|it| it.load_busy),
            ratios.requests,
            ratios.lowest,
            ratios.highest,
            ratios.processor,
            judge(row.name, ratios.requests, targets)
        );
    }
}

/// Prints ours in relation to somebody who is not here, but had this share of what one of the rows does.
pub(super) fn estimate(rows: &[Row], beside: &str, share: f64, target: &Target) {
    let beside = rows.iter().find(|row| row.name == beside);
    let (Some(ours), Some(beside)) = (rows.first(), beside) else { return };
    let ratio = Ratios::of(ours, beside).requests / share;
    println!(
        "  {:<22} not measured: elsewhere it had {share:.3} of {}; by that ours / it: {ratio:.2} requests{}",
        target.against,
        beside.name,
        judge(target.against, ratio, std::slice::from_ref(target))
    );
}

fn judge(name: &str, ratio: f64, targets: &[Target]) -> String {
    let Some(target) = targets.iter().find(|target| target.against == name) else {
        return String::new();
    };
    let met = if ratio >= target.at_least { "yes" } else { "NO" };
    format!("; must be {}: {met}", target.at_least)
}

/// Ours over another's, round by round.
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

/// Of an even number, the middle between the two in the middle: the higher one would be in somebody's favour.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
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
        // A machine that is twice as fast in its last round: the ratio does not mind.
        let ratios = Ratios::of(&row("ours", [10.0, 12.0, 22.0]), &row("it", [10.0, 10.0, 20.0]));
        assert!((ratios.requests - 1.1).abs() < 1e-9);
        assert!((ratios.lowest - 1.0).abs() < 1e-9 && (ratios.highest - 1.2).abs() < 1e-9);
    }

    #[test]
    fn everybody_has_as_many_turns_and_the_first_one_does_not_count() {
        let mut order = Vec::new();
        let rows = turns(["ours", "it"].into_iter(), 2, |place| {
            order.push(place);
            Ok(Measured { per_second: 1.0, cpu_us: 1.0, load_busy: 0.5 })
        });
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
        assert!(rows.unwrap().iter().all(|row| row.rounds.len() == 2));
    }

    #[test]
    fn the_median_favours_nobody() {
        let of = |values: &[f64]| median(values.iter().copied());
        assert!((of(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((of(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(of(&[]).is_nan());
    }

    #[test]
    fn a_target_is_met_or_not() {
        let targets = [Target { against: "it", at_least: 1.2 }];
        assert_eq!(judge("it", 1.2, &targets), "; must be 1.2: yes");
        assert_eq!(judge("it", 1.19, &targets), "; must be 1.2: NO");
        assert_eq!(judge("other", 0.1, &targets), "");
    }
}
