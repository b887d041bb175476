//! Sums and histograms since the start of the process, for the file. (A collector's are kept by its SDK.)

use serde_json::{Map, Value, json};

use super::file::hr_time;
use super::measure::{Instrument, Kind, Measurement};

/// Most series that are kept. Attributes are names of tools, models and hooks: a session knows some dozens.
const SERIES_MAX: usize = 2000;

/// Upper bounds of a histogram's buckets; OpenTelemetry's default.
const BOUNDS: [f64; 15] =
    [0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0, 10000.0];

/// What was measured so far.
pub(super) struct Metrics {
    since_ms: u64,
    series: Vec<Series>,
}

struct Series {
    instrument: &'static Instrument,
    attributes: Vec<(&'static str, Value)>,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    buckets: [u64; BOUNDS.len() + 1],
}

impl Metrics {
    pub(super) fn new(since_ms: u64) -> Self {
        Self { since_ms, series: Vec::new() }
    }

    pub(super) fn add(&mut self, measurement: &Measurement) {
        let Measurement { instrument, value, attributes } = measurement;
        let same = |series: &Series| series.instrument.name == instrument.name && series.attributes == *attributes;
        let index = match self.series.iter().position(same) {
            Some(index) => index,
            None if self.series.len() >= SERIES_MAX => return,
            None => {
                self.series.push(Series::new(instrument, attributes.clone()));
                self.series.len() - 1
            }
        };
        if let Some(series) = self.series.get_mut(index) {
            series.add(*value);
        }
    }

    /// All metrics, with one data point per set of attributes.
    pub(super) fn snapshot(&self, now_ms: u64) -> Value {
        let mut metrics: Vec<Value> = Vec::new();
        let mut names: Vec<&'static str> = Vec::new();
        for series in &self.series {
            if names.contains(&series.instrument.name) {
                continue;
            }
            names.push(series.instrument.name);
            let points = self.series.iter().filter(|other| other.instrument.name == series.instrument.name);
            let points: Vec<Value> = points.map(|series| series.point(self.since_ms, now_ms)).collect();
            metrics.push(series.instrument.describe(points));
        }
        metrics.into()
    }
}

impl Series {
    fn new(instrument: &'static Instrument, attributes: Vec<(&'static str, Value)>) -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { instrument, attributes, count: 0, sum: 0.0, min, max, buckets: [0; BOUNDS.len() + 1] }
    }

    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let bucket = BOUNDS.iter().position(|bound| value <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
    }

    fn point(&self, since_ms: u64, now_ms: u64) -> Value {
        let value = match self.instrument.kind {
            Kind::Counter => number(self.sum),
            Kind::Histogram => json!({
                "count": self.count,
                "sum": number(self.sum),
                "min": number(self.min),
                "max": number(self.max),
                "buckets": {"boundaries": BOUNDS.map(number), "counts": self.buckets},
            }),
        };
        let attributes: Map<String, Value> =
            self.attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        json!({"attributes": attributes, "startTime": hr_time(since_ms), "endTime": hr_time(now_ms), "value": value})
    }
}

impl Instrument {
    fn describe(&self, points: Vec<Value>) -> Value {
        let (kind, point_type) = match self.kind {
            Kind::Counter => ("COUNTER", 3),
            Kind::Histogram => ("HISTOGRAM", 0),
        };
        let descriptor = json!({
            "name": self.name, "type": kind, "description": self.description, "unit": self.unit, "valueType": 1,
        });
        let mut metric = Map::new();
        metric.insert("descriptor".to_owned(), descriptor);
        // Cumulative.
        metric.insert("aggregationTemporality".to_owned(), json!(1));
        metric.insert("dataPointType".to_owned(), json!(point_type));
        metric.insert("dataPoints".to_owned(), points.into());
        if self.kind == Kind::Counter {
            metric.insert("isMonotonic".to_owned(), json!(true));
        }
        Value::Object(metric)
    }
}

/// Whole numbers without a fraction, as everybody else writes them.
fn number(value: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and far inside of the range")]
    match value {
        whole if whole.fract() == 0.0 && whole.abs() < 9e15 => json!(whole as i64),
        other => json!(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure;
    use super::*;

    #[test]
    fn sums_and_histograms_by_attributes() {
        let mut metrics = Metrics::new(1000);
        metrics.add(&measure::session());
        let call = |name: &str, value| Measurement {
            instrument: &measure::TOOL_CALL_LATENCY,
            value,
            attributes: vec![("function_name", json!(name))],
        };
        for measurement in [call("a", 7.0), call("a", 30.5), call("b", 20_000.0)] {
            metrics.add(&measurement);
        }
        let told = metrics.snapshot(2500);
        assert_eq!(told[0]["descriptor"]["name"], "gemini_cli.session.count");
        assert_eq!(told[0]["dataPoints"][0]["value"], 1);
        assert_eq!(told[0]["dataPoints"][0]["startTime"], json!([1, 0]));
        assert_eq!(told[0]["dataPoints"][0]["endTime"], json!([2, 500_000_000]));
        assert_eq!(told[1]["dataPoints"][0]["value"]["sum"], 37.5);
        assert_eq!(told[1]["dataPoints"][0]["value"]["buckets"]["counts"][2], 1);
        assert_eq!(told[1]["dataPoints"][1]["value"]["buckets"]["counts"][15], 1);
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let mut metrics = Metrics::new(0);
        for n in 0..SERIES_MAX + 10 {
            let attributes = vec![("function_name", json!(n))];
            metrics.add(&Measurement { instrument: &measure::TOOL_CALL_COUNT, value: 1.0, attributes });
        }
        assert_eq!(metrics.series.len(), SERIES_MAX);
    }
}
