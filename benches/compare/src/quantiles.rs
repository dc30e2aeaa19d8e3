//! Times of single operations, by quantile.

use crate::distance;
use crate::harness::{Latencies, Plan, Results, Series};
use crate::report;

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// One entrant: a name and one run.
pub(crate) type Entrant<'a> = (&'a str, Box<dyn Fn() -> Latencies + 'a>);

/// Runs the entrants in turns and prints their table; gives the results by quantile.
pub(crate) fn measure(plan: &Plan, title: &str, entrants: &[Entrant<'_>]) -> [Results; 3] {
    let mut values = vec![[const { Vec::new() }; 3]; entrants.len()];
    for turn in 0..=plan.runs {
        for ((_, run), values) in entrants.iter().zip(&mut values) {
            let latencies = distance::steady(run);
            if turn > 0 {
                for (values, (_, quantile)) in values.iter_mut().zip(QUANTILES) {
                    values.push(latencies.at(quantile));
                }
            }
        }
    }
    let by_quantile: [Results; 3] = std::array::from_fn(|quantile| {
        let series = entrants.iter().zip(&mut values);
        let series = series
            .map(|((name, _), values)| Series::new(*name, std::mem::take(&mut values[quantile])));
        Results(series.collect())
    });
    print_table(title, entrants, &by_quantile);
    by_quantile
}

fn print_table(title: &str, entrants: &[Entrant<'_>], by_quantile: &[Results; 3]) {
    let header: Vec<&str> = QUANTILES.iter().map(|(name, _)| *name).collect();
    println!("\n### {title} (ns: median of the runs, min to max)\n");
    println!("| contender | {} |\n|---|---:|---:|---:|", header.join(" | "));
    for (index, (name, _)) in entrants.iter().enumerate() {
        let cells = by_quantile.iter().map(|results| {
            let series = &results.0[index];
            let [median, min, max] =
                [series.median(), series.min(), series.max()].map(report::number);
            format!("{median} ({min} to {max})")
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}
