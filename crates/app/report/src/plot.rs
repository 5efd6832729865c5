//! Lines over a logarithmic axis, dots over time, and heat maps, as inline SVG in the style of [`crate::svg`].

use crate::html::escape;
use crate::number;
use crate::svg::{
    Axis, LEFT, LINE_HEIGHT, PLOT_HEIGHT, RIGHT, SERIES_COLORS, Scale, TOP, WIDTH_WANTED, is_drawable, small,
    words,
};

/// A value with its interval at a place of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Position on a logarithmic axis, above 0.
    pub x: f64,
    /// Label below the axis.
    pub label: String,
    /// The value.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
}

/// A named line or cloud of dots.
#[derive(Clone, Debug, PartialEq)]
pub struct Series<T> {
    /// Its name in the legend; empty for none.
    pub name: String,
    /// Its points.
    pub points: Vec<T>,
}

/// Titles of a plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Titles {
    /// Title, for screen readers.
    pub title: String,
    /// Title of the horizontal axis, with the unit.
    pub x: String,
    /// Title of the vertical axis, with the unit.
    pub y: String,
}

/// Lines over a logarithmic horizontal axis, with the interval of each point; empty without points.
#[must_use]
pub fn lines(titles: &Titles, series: &[Series<Point>]) -> String {
    let points = || {
        series
            .iter()
            .flat_map(|series| &series.points)
            .filter(|point| is_point(point))
    };
    let positions: Vec<f64> = points().map(|point| point.x.ln()).collect();
    let Some(horizontal) = Range::of(&positions) else {
        return String::new();
    };
    let values: Vec<f64> = points().flat_map(|point| [point.value, point.high]).collect();
    let axis = Axis::new(Scale::Linear, &values);
    let mut inside = String::new();
    for (index, series) in series.iter().enumerate() {
        let color = index % SERIES_COLORS;
        let stroke = format!("style=\"stroke:var(--series-{color})\"");
        let mut path = String::new();
        let mut marks = String::new();
        for point in series.points.iter().filter(|point| is_point(point)) {
            let (x, y) = (horizontal.position(point.x.ln()), axis.position(point.value));
            let (Some(y), Some(low), Some(high)) = (y, axis.position(point.low), axis.position(point.high))
            else {
                continue;
            };
            path += &format!("{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { " L" });
            let tooltip = format!(
                "{} {}: {}",
                series.name,
                point.label,
                number::significant(point.value)
            );
            marks += &format!(
                "<line class=\"range\" {stroke} x1=\"{x:.1}\" y1=\"{low:.1}\" x2=\"{x:.1}\" y2=\"{high:.1}\"/>\
                 <circle class=\"series-{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>\n",
                escape(tooltip.trim())
            );
        }
        inside += &format!("<path class=\"line\" {stroke} d=\"{path}\"/>\n{marks}");
    }
    let mut seen: Vec<&str> = Vec::new();
    for point in points() {
        if !seen.contains(&point.label.as_str()) {
            seen.push(&point.label);
            inside += &words(
                "label",
                horizontal.position(point.x.ln()),
                TOP + PLOT_HEIGHT + 20.0,
                &point.label,
            );
        }
    }
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    framed(titles, &axis, &names, &inside)
}

/// Dots at (x, y), both on linear axes from 0; empty without dots.
#[must_use]
pub fn dots(titles: &Titles, series: &[Series<(f64, f64)>]) -> String {
    let all = || {
        let points = series.iter().flat_map(|series| &series.points).copied();
        points.filter(|(x, y)| is_drawable(*x) && is_drawable(*y))
    };
    let largest = all().map(|(x, _)| x).fold(0.0, f64::max);
    if all().next().is_none() {
        return String::new();
    }
    let horizontal = Range {
        low: 0.0,
        high: largest.max(f64::MIN_POSITIVE),
    };
    let values: Vec<f64> = all().map(|(_, y)| y).collect();
    let axis = Axis::new(Scale::Linear, &values);
    let mut inside = String::new();
    for (index, series) in series.iter().enumerate() {
        inside += &format!("<g class=\"series-{}\">\n", index % SERIES_COLORS);
        for (x, y) in series
            .points
            .iter()
            .filter(|(x, y)| is_drawable(*x) && is_drawable(*y))
        {
            if let Some(y) = axis.position(*y) {
                inside += &format!(
                    "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"1.6\"/>\n",
                    horizontal.position(*x)
                );
            }
        }
        inside += "</g>\n";
    }
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let x = largest * part;
        inside += &words(
            "label",
            horizontal.position(x),
            TOP + PLOT_HEIGHT + 20.0,
            &number::significant(x),
        );
    }
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    framed(titles, &axis, &names, &inside)
}

/// A square for each row and column, the darker the larger its value, with the value in it; empty without values.
#[must_use]
pub fn heat_map(
    title: &str,
    rows: &[String],
    columns: &[String],
    value: &dyn Fn(usize, usize) -> Option<f64>,
) -> String {
    let cells = (0..rows.len()).flat_map(|row| (0..columns.len()).map(move |column| (row, column)));
    let drawn = cells.filter_map(|(row, column)| {
        let value = value(row, column).filter(|value| is_drawable(*value))?;
        Some((row, column, value))
    });
    let drawn: Vec<(usize, usize, f64)> = drawn.collect();
    let largest = drawn.iter().map(|(_, _, value)| *value).fold(0.0, f64::max);
    if drawn.is_empty() || largest <= 0.0 {
        return String::new();
    }
    let (left, top, side, line) = (150.0, 24.0, 96.0, 26.0);
    let mut svg = format!("<title>{}</title>\n", escape(title));
    for (index, column) in columns.iter().enumerate() {
        svg += &words("label", left + side * (small(index) + 0.5), top - 8.0, column);
    }
    for (index, row) in rows.iter().enumerate() {
        let y = top + line * (small(index) + 0.65);
        svg += &format!(
            "<text class=\"left\" x=\"2.0\" y=\"{y:.1}\">{}</text>\n",
            escape(row)
        );
    }
    for (row, column, value) in drawn {
        let (x, y) = (left + side * small(column), top + line * small(row));
        let opacity = 0.08 + 0.72 * (value / largest).clamp(0.0, 1.0);
        svg += &format!(
            "<rect class=\"square series-3\" style=\"fill-opacity:{opacity:.2}\" x=\"{x:.1}\" y=\"{y:.1}\" \
             width=\"{side:.1}\" height=\"{line:.1}\"/>\n"
        );
        svg += &words("value", x + side / 2.0, y + line * 0.65, &format!("{value:.2}"));
    }
    let (width, height) = (
        left + side * small(columns.len()),
        top + line * small(rows.len()) + 4.0,
    );
    canvas(width, height, &svg)
}

fn is_point(point: &Point) -> bool {
    point.x > 0.0
        && [point.x, point.value, point.low, point.high]
            .iter()
            .all(|value| is_drawable(*value))
}

/// The horizontal axis.
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn of(values: &[f64]) -> Option<Self> {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        Some(Self {
            low,
            high: if high > low { high } else { low + 1.0 },
        })
    }

    fn position(&self, value: f64) -> f64 {
        let part = (value - self.low) / (self.high - self.low);
        LEFT + 16.0 + (WIDTH_WANTED - LEFT - RIGHT - 32.0) * part
    }
}

/// A drawing with its axes and the legend.
fn framed(titles: &Titles, axis: &Axis, names: &[&str], inside: &str) -> String {
    let (bottom, end) = (TOP + PLOT_HEIGHT, WIDTH_WANTED - RIGHT);
    let mut svg = format!(
        "<title>{}</title>\n{}",
        escape(&titles.title),
        axis.render(&titles.y, end)
    );
    svg += &format!(
        "<line class=\"axis\" x1=\"{LEFT:.1}\" y1=\"{bottom:.1}\" x2=\"{end:.1}\" y2=\"{bottom:.1}\"/>\n{inside}"
    );
    svg += &words("axis-title", LEFT, bottom + 40.0, &titles.x);
    let named: Vec<(usize, &&str)> = names
        .iter()
        .enumerate()
        .filter(|(_, name)| !name.is_empty())
        .collect();
    let legend = if names.len() > 1 { &named[..] } else { &[] };
    for (line, (index, name)) in legend.iter().enumerate() {
        let y = bottom + 40.0 + LINE_HEIGHT * small(line + 1);
        let color = index % SERIES_COLORS;
        svg += &format!(
            "<circle class=\"series-{color}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/>",
            LEFT + 4.0,
            y - 4.0
        );
        svg += &format!(
            "<text class=\"left\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>\n",
            LEFT + 14.0,
            escape(name)
        );
    }
    canvas(
        WIDTH_WANTED,
        bottom + 48.0 + LINE_HEIGHT * small(legend.len()),
        &svg,
    )
}

fn canvas(width: f64, height: f64, inside: &str) -> String {
    format!(
        "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         style=\"min-width:{:.0}px;max-width:{:.0}px\">\n{inside}</svg>\n",
        width * 0.5,
        width * 1.3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles() -> Titles {
        Titles {
            title: "<t>".to_owned(),
            x: "unit".to_owned(),
            y: "MB/s".to_owned(),
        }
    }

    fn point(x: f64, value: f64) -> Point {
        Point {
            x,
            label: format!("{x}k"),
            value,
            low: value * 0.9,
            high: value * 1.1,
        }
    }

    #[test]
    fn equal_factors_of_x_are_equal_distances() {
        let points = vec![point(4.0, 1.0), point(32.0, 2.0), point(256.0, 3.0)];
        let svg = lines(
            &titles(),
            &[Series {
                name: String::new(),
                points,
            }],
        );
        assert!(svg.contains("&lt;t&gt;"), "{svg}");
        let path = svg.split_once(" d=\"M").unwrap().1.split_once('"').unwrap().0;
        let xs: Vec<f64> = path
            .split(" L")
            .map(|pair| pair.split_once(' ').unwrap().0.parse().unwrap())
            .collect();
        assert!((xs[1] - xs[0] - (xs[2] - xs[1])).abs() < 0.11, "{xs:?}");
    }

    #[test]
    fn nothing_to_draw_is_no_drawing() {
        assert_eq!(lines(&titles(), &[]), "");
        assert_eq!(
            dots(
                &titles(),
                &[Series {
                    name: String::new(),
                    points: vec![(f64::NAN, 1.0)]
                }]
            ),
            ""
        );
        assert_eq!(
            heat_map("t", &["a".to_owned()], &["b".to_owned()], &|_, _| None),
            ""
        );
        let points = vec![point(0.0, 1.0), point(f64::INFINITY, 1.0), point(2.0, f64::NAN)];
        assert_eq!(
            lines(
                &titles(),
                &[Series {
                    name: String::new(),
                    points
                }]
            ),
            ""
        );
    }

    #[test]
    fn a_heat_map_has_a_square_for_each_value() {
        let rows = ["r1", "r2"].map(str::to_owned);
        let columns = ["c1", "c2"].map(str::to_owned);
        let svg = heat_map("t", &rows, &columns, &|row, column| {
            (row + column < 2).then_some(0.5)
        });
        assert_eq!(svg.matches("<rect").count(), 3);
    }
}
