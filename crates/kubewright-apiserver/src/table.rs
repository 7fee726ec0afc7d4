//! Tables, the format that `kubectl get` prints
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>).
//!
//! These are pure functions from objects in served form to `Table` documents.

use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::path::JsonPath;
use serde_json::{Value, json};

use crate::registry::{Cell, Column, Resource};

/// The content type of a table.
pub const CONTENT_TYPE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The part of the object that each row includes (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// The object's metadata, as `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The complete object.
    Object,
}

impl Include {
    /// Parses the parameter. Returns `None` for an unknown value.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "None" => Self::None,
            "" | "Metadata" => Self::Metadata,
            "Object" => Self::Object,
            _ => return None,
        })
    }
}

/// The options of rendering.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The part of the object that rows include.
    pub include: Include,
    /// True if the table defines the columns. For a watch, only the first event does.
    pub headers: bool,
    /// The current time, for ages.
    pub now: Timestamp,
    /// The version of the table, such as `meta.k8s.io/v1`.
    pub version: &'static str,
}

/// Renders objects of one resource. `metadata` is that of the list. For a single object and for each event of a watch,
/// it contains the object's `resourceVersion`.
pub fn render<'a>(
    resource: &Resource,
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: &Value,
    options: Options,
) -> Value {
    let columns = Columns::of(resource);
    let rows: Vec<_> = objects.into_iter().map(|object| columns.row(object, options)).collect();
    let mut table = json!({"kind": "Table", "apiVersion": options.version, "metadata": metadata, "rows": rows});
    table["columnDefinitions"] = if options.headers { columns.definitions() } else { Value::Null };
    table
}

/// Formats the age of a time in an object: `5m`, `<unknown>` if the time is absent, `<invalid>` if it isn't a time or
/// is in the future.
pub fn age_of(time: Option<&Value>, now: Timestamp) -> String {
    match time.and_then(Value::as_str) {
        None | Some("") => "<unknown>".into(),
        Some(text) => {
            text.parse::<Timestamp>().map_or("<invalid>".into(), |then| human_duration(now.duration_since(then)))
        }
    }
}

/// Formats a duration in at most two units, with about three digits of precision, as kubectl prints ages.
pub fn human_duration(duration: SignedDuration) -> String {
    /// Formats the larger unit, and the smaller one unless it is zero.
    fn pair(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
        if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
    }
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match () {
        () if seconds < -1 => "<invalid>".into(),
        () if seconds < 0 => "0s".into(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => pair(days, 'd', hours % 24, 'h'),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => pair(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

/// The columns of a resource, with paths that are parsed once for all rows.
struct Columns<'a> {
    columns: Vec<(&'a Column, Source)>,
    /// True if the table begins with a name column, because the resource doesn't define one.
    leading_name: bool,
}

enum Source {
    /// `None` for a path that can't be parsed; a CRD with such a path is rejected.
    Path(Option<JsonPath>),
    Computed(fn(&Value, Timestamp) -> Value),
}

const NAME_DESCRIPTION: &str = "The object's name, unique among its kind, within its namespace if it has one.";

impl<'a> Columns<'a> {
    fn of(resource: &'a Resource) -> Self {
        let columns = resource.columns.iter().map(|column| {
            let source = match &column.cell {
                Cell::Path(path) => Source::Path(JsonPath::parse(path).ok()),
                Cell::Computed(cell) => Source::Computed(*cell),
            };
            (column, source)
        });
        // That of a scale has no format. Columns by paths are those of a CRD, which may have any names.
        let is_name = |column: &Column| {
            column.format == "name" || matches!(column.cell, Cell::Computed(_)) && column.name == "Name"
        };
        let leading_name = !resource.columns.iter().any(is_name);
        Self { columns: columns.collect(), leading_name }
    }

    fn definitions(&self) -> Value {
        let define = |name: &str, kind: &str, format: &str, description: &str, priority: i32| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
        let name = self.leading_name.then(|| define("Name", "string", "name", NAME_DESCRIPTION, 0));
        let others = self.columns.iter().map(|(column, _)| {
            define(&column.name, &column.kind, &column.format, &column.description, column.priority)
        });
        name.into_iter().chain(others).collect()
    }

    fn row(&self, object: &Value, options: Options) -> Value {
        let name = self.leading_name.then(|| object.pointer("/metadata/name").cloned().unwrap_or_default());
        let cells = self.columns.iter().map(|(column, source)| match source {
            Source::Path(path) => path_cell(path.as_ref(), &column.kind, object, options.now),
            Source::Computed(cell) => cell(object, options.now),
        });
        let cells: Vec<_> = name.into_iter().chain(cells).collect();
        match options.include {
            Include::None => json!({"cells": cells, "object": null}),
            Include::Metadata => json!({"cells": cells, "object": partial(options.version, object)}),
            Include::Object => json!({"cells": cells, "object": object}),
        }
    }
}

/// Returns the `PartialObjectMetadata` of an object, in a version such as `meta.k8s.io/v1`.
pub fn partial(version: &str, object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": object["metadata"]})
}

/// Returns the cell of a custom column. It is null, which is printed as nothing, if the value is absent or of another
/// type.
fn path_cell(path: Option<&JsonPath>, kind: &str, object: &Value, now: Timestamp) -> Value {
    let Some(value) = path.and_then(|path| path.first(object)) else { return Value::Null };
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => {
            number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)).into()
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => value.clone(),
        ("string", other) => other.to_string().into(),
        ("date", Value::String(text)) if text.is_empty() => Value::Null,
        ("date", Value::String(_)) => age_of(Some(value), now).into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_shows_them() {
        let check = |seconds: i64, expect: &str| {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), expect, "{seconds}");
        };
        let (minute, hour, day, year) = (60, 3600, 86_400, 86_400 * 365);
        check(-2, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(125, "2m5s");
        check(10 * minute + 5, "10m");
        check(179 * minute, "179m");
        check(3 * hour, "3h");
        check(3 * hour + 5 * minute, "3h5m");
        check(8 * hour + 5 * minute, "8h");
        check(47 * hour, "47h");
        check(2 * day, "2d");
        check(2 * day + 3 * hour, "2d3h");
        check(8 * day + 3 * hour, "8d");
        check(2 * year, "2y");
        check(2 * year + 5 * day, "2y5d");
        check(8 * year + 5 * day, "8y");
    }

    #[test]
    fn cells_of_custom_columns_follow_their_type() {
        let now: Timestamp = "2024-01-01T01:00:00Z".parse().unwrap();
        let object = json!({"a": {"i": 3, "f": 2.5, "s": "x", "b": true, "l": [1, 2], "t": "2024-01-01T00:00:00Z"}});
        let check = |path: &str, kind: &str, expect: Value| {
            let path = JsonPath::parse(path).unwrap();
            assert_eq!(path_cell(Some(&path), kind, &object, now), expect);
        };
        check(".a.i", "integer", json!(3));
        check(".a.f", "integer", json!(2));
        check(".a.f", "number", json!(2.5));
        check(".a.s", "integer", Value::Null);
        check(".a.i", "string", json!("3"));
        check(".a.l", "string", json!("[1,2]"));
        check(".a.b", "boolean", json!(true));
        check(".a.t", "date", json!("60m"));
        check(".a.s", "date", json!("<invalid>"));
        check(".a.none", "string", Value::Null);
    }
}
