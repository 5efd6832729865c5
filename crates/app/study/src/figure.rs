//! Figures of an exhibit: bars, lines over a numeric axis, a heat map of many axes, or the layout over time.

use programs::quantity::{parse_bytes, parse_duration};
use report::number;
use report::plot::{self, Point, Series, Titles};
use report::record_comparison::interval;
use report::svg::{Bar, BarChart, BarGroup, Scale};
use results::{Estimate, nearest_f64};

use crate::evidence::Shown;
use crate::page::{Drawn, heading};
use crate::plan::{Exhibit, Quantity};

/// Axes from which on an exhibit is a heat map.
const HEAT_MAP_AXES: usize = 3;

/// The pictures of an exhibit with their captions.
pub fn of(drawn: &Drawn<'_>) -> Vec<(String, String)> {
    let exhibit = drawn.exhibit;
    if exhibit.y == Quantity::Layout {
        return layouts(drawn);
    }
    let words = fixed(exhibit);
    if exhibit.axes.len() >= HEAT_MAP_AXES {
        return vec![(heat_map(drawn), format!("{}; medians.{words}", exhibit.y.title()))];
    }
    match lines(drawn) {
        Some(picture) => vec![(
            picture,
            format!(
                "{} over {}; medians with intervals.{words}",
                exhibit.y.title(),
                exhibit.x
            ),
        )],
        None => vec![(
            bars(drawn),
            format!("{}; bars are medians, dots are rounds.{words}", exhibit.y.title()),
        )],
    }
}

fn fixed(exhibit: &Exhibit) -> String {
    let fixed: Vec<String> = exhibit
        .fixed
        .iter()
        .map(|(axis, value)| format!("{axis} = {value}"))
        .collect();
    match fixed.is_empty() {
        true => String::new(),
        false => format!(" {}.", fixed.join(", ")),
    }
}

/// A value with its interval, in the form of the exhibit's quantity.
pub fn in_words(exhibit: &Exhibit, estimate: &Estimate) -> String {
    interval(estimate, form(exhibit))
}

fn form(exhibit: &Exhibit) -> fn(f64) -> String {
    match exhibit.y {
        Quantity::Throughput | Quantity::Layout => number::significant,
        Quantity::ShareOfMax => |value| format!("{value:.2}"),
        Quantity::Counter(_) => number::count,
    }
}

/// The values of the axes other than x.
fn others<'shown>(exhibit: &'shown Exhibit, shown: &'shown Shown) -> String {
    let others = exhibit.axes.iter().filter(|(axis, _)| *axis != exhibit.x);
    let values: Vec<&str> = others
        .filter_map(|(axis, _)| shown.slot.values.get(axis).map(String::as_str))
        .collect();
    values.join(" ")
}

fn x<'shown>(exhibit: &Exhibit, shown: &'shown Shown) -> &'shown str {
    shown.slot.values.get(&exhibit.x).map_or("", String::as_str)
}

/// A group for each value of x, with a bar for each combination of the other axes.
fn bars(drawn: &Drawn<'_>) -> String {
    let exhibit = drawn.exhibit;
    let mut groups: Vec<BarGroup> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for shown in &drawn.shown {
        let series = others(exhibit, shown);
        let color = names.iter().position(|name| *name == series).unwrap_or_else(|| {
            names.push(series.clone());
            names.len() - 1
        });
        let value = shown.estimate.as_ref().map(|estimate| estimate.value);
        let label = if series.is_empty() {
            String::new()
        } else {
            x(exhibit, shown).to_owned()
        };
        let bar = Bar {
            label: if series.is_empty() {
                x(exhibit, shown).to_owned()
            } else {
                series
            },
            value,
            samples: shown.values.clone(),
            annotation: value.map(form(exhibit)).into_iter().collect(),
            tooltip: shown
                .estimate
                .as_ref()
                .map_or_else(String::new, |estimate| in_words(exhibit, estimate)),
            series: color,
        };
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.bars.push(bar),
            None => groups.push(BarGroup {
                label,
                reference: None,
                bars: vec![bar],
            }),
        }
    }
    BarChart {
        title: heading(exhibit),
        axis: exhibit.y.title(),
        scale: Scale::Linear,
        groups,
    }
    .render()
}

/// Lines, if x has at least three values and all are sizes or durations.
fn lines(drawn: &Drawn<'_>) -> Option<String> {
    let exhibit = drawn.exhibit;
    let mut series: Vec<Series<Point>> = Vec::new();
    let mut places: Vec<f64> = Vec::new();
    for shown in &drawn.shown {
        let label = x(exhibit, shown).to_owned();
        let place = position(&label)?;
        if !places.iter().any(|known| known.to_bits() == place.to_bits()) {
            places.push(place);
        }
        let Some(estimate) = &shown.estimate else {
            continue;
        };
        let point = Point {
            x: place,
            label,
            value: estimate.value,
            low: estimate.low,
            high: estimate.high,
        };
        let name = others(exhibit, shown);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    if places.len() < 3 {
        return None;
    }
    let titles = Titles {
        title: heading(exhibit),
        x: exhibit.x.clone(),
        y: exhibit.y.title(),
    };
    Some(plot::lines(&titles, &series))
}

/// The position of a value on a numeric axis.
fn position(text: &str) -> Option<f64> {
    let bytes = parse_bytes(text).ok().map(nearest_f64);
    bytes
        .or_else(|| parse_duration(text).ok().map(|time| time.as_secs_f64()))
        .filter(|place| *place > 0.0)
}

/// Rows of x and the axes without prefix, columns of the mount's and the workload's.
fn heat_map(drawn: &Drawn<'_>) -> String {
    let exhibit = drawn.exhibit;
    let name = |shown: &Shown, is_column: bool| {
        let own = exhibit
            .axes
            .iter()
            .filter(|(axis, _)| axis.contains('.') == is_column);
        let values: Vec<&str> = own
            .filter_map(|(axis, _)| shown.slot.values.get(axis).map(String::as_str))
            .collect();
        values.join(" ")
    };
    let distinct = |is_column: bool| {
        let mut names: Vec<String> = Vec::new();
        for shown in &drawn.shown {
            let name = name(shown, is_column);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let (rows, columns) = (distinct(false), distinct(true));
    plot::heat_map(&heading(exhibit), &rows, &columns, &|row, column| {
        let is_here =
            |shown: &&Shown| name(shown, false) == rows[row] && name(shown, true) == columns[column];
        drawn
            .shown
            .iter()
            .find(is_here)?
            .estimate
            .as_ref()
            .map(|estimate| estimate.value)
    })
}

/// A picture for each slot.
fn layouts(drawn: &Drawn<'_>) -> Vec<(String, String)> {
    let pictures = drawn
        .shown
        .iter()
        .zip(&drawn.layouts)
        .map(|(shown, [data, metadata])| {
            let values: Vec<&str> = shown.slot.values.values().map(String::as_str).collect();
            let titles = Titles {
                title: format!("{}: {}", heading(drawn.exhibit), values.join(" ")),
                x: "milliseconds since the first write request".to_owned(),
                y: drawn.exhibit.y.title(),
            };
            let series = [("data", data), ("metadata and journal", metadata)].map(|(name, points)| Series {
                name: name.to_owned(),
                points: points.clone(),
            });
            let caption = format!(
                "{}: write requests on the device over time, one round.",
                values.join(" ")
            );
            (plot::dots(&titles, &series), caption)
        });
    pictures.collect()
}
