//! The tables and the `BAR` lines.

use crate::harness::Results;

/// The column that ratios are taken against, where it is there.
pub(crate) const OURS: &str = "slipring";

/// Prints one table: the contenders with median, range, and our median over theirs.
pub(crate) fn table(title: &str, unit: &str, ours: &str, results: &Results) {
    let against = results.median(ours);
    println!("\n### {title}\n\n| contender | {unit} | min to max | slipring / it |");
    println!("|---|---:|---:|---:|");
    for series in &results.0 {
        let ratio = match against {
            Some(ours) if series.name != OURS => format!("{:.2}x", ours / series.median()),
            _ => String::new(),
        };
        println!(
            "| {} | {} | {} to {} | {ratio} |",
            series.name,
            number(series.median()),
            number(series.min()),
            number(series.max()),
        );
    }
}

/// Three digits, whatever the size.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The bars of all sections, printed at the end of the run.
#[derive(Debug, Default)]
pub(crate) struct Bars(Vec<String>);

impl Bars {
    /// A bar that wants at least `required`. Nothing measured: our side is not built in.
    pub(crate) fn at_least(&mut self, id: &str, measured: Option<f64>, required: f64, unit: &str) {
        self.add(id, measured, ">=", required, unit, |measured| measured >= required);
    }

    /// A bar that wants at most `required`.
    pub(crate) fn at_most(&mut self, id: &str, measured: Option<f64>, required: f64, unit: &str) {
        self.add(id, measured, "<=", required, unit, |measured| measured <= required);
    }

    fn add(
        &mut self,
        id: &str,
        measured: Option<f64>,
        sign: &str,
        required: f64,
        unit: &str,
        passes: impl Fn(f64) -> bool,
    ) {
        self.0.push(match measured {
            Some(value) => {
                let verdict = if passes(value) { "PASS" } else { "FAIL" };
                format!("BAR {id} {value:.2}{unit} {sign}{required:.2}{unit} {verdict}")
            }
            None => format!("BAR {id} - {sign}{required:.2}{unit} SKIP built without slipring"),
        });
    }

    /// A bar that cannot be measured here.
    pub(crate) fn skip(&mut self, id: &str, why: &str) {
        self.0.push(format!("BAR {id} - - SKIP {why}"));
    }

    /// Prints all lines, by section and number.
    pub(crate) fn print(&mut self) {
        let number = |line: &String| {
            let id = line.split(' ').nth(1).unwrap_or_default();
            let number = id.get(1..).and_then(|number| number.parse::<u32>().ok());
            (id.chars().next(), number)
        };
        self.0.sort_by_key(number);
        println!();
        for line in &self.0 {
            println!("{line}");
        }
    }
}
