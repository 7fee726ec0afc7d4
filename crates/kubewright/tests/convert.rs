//! Tests of `#[derive(Convert)]`, including the property tests that it generates for each struct (`…_round_trips`).

use kubewright::conversion::{ANNOTATION, ConversionError, Convert, Convertible, Data, testing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The hub: the stored version.
mod v2 {
    use std::collections::BTreeMap;

    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "example.com", version = "v2", kind = "Pane", namespaced, status = "PaneStatus")]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct PaneSpec {
        pub(crate) name: String,
        pub(crate) wide: u16,
        pub(crate) high: u16,
        pub(crate) frame: Frame,
        #[serde(default)]
        pub(crate) hinges: Vec<Hinge>,
        #[serde(default)]
        pub(crate) handle: Option<Hinge>,
        #[serde(default)]
        pub(crate) glass: BTreeMap<String, i32>,
        #[serde(default)]
        pub(crate) data: u8,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Frame {
        pub(crate) colour: String,
        #[serde(default)]
        pub(crate) paint: Paint,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Paint {
        #[serde(default)]
        pub(crate) coats: u8,
        #[serde(default)]
        pub(crate) maker: Option<String>,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Hinge {
        pub(crate) millimetres: i64,
        #[serde(default)]
        pub(crate) oiled: bool,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct PaneStatus {
        pub(crate) is_open: bool,
        #[serde(default)]
        pub(crate) since: Option<String>,
    }
}

/// A spoke with every supported kind of difference.
mod v1 {
    use kube::CustomResource;
    use kubewright::conversion::Convert;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::{size, v2};

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, Convert)]
    #[kube(group = "example.com", version = "v1", kind = "Pane", namespaced, status = "PaneStatus")]
    #[convert(hub = v2::PaneSpec, kind = Pane, hub_kind = v2::Pane, status = converted, hub_only(glass))]
    pub(crate) struct PaneSpec {
        #[convert(renamed = "name")]
        pub(crate) title: String,
        #[convert(split(wide, high), with = size)]
        pub(crate) size: String,
        #[convert(moved = "frame.colour")]
        pub(crate) colour: String,
        #[serde(default)]
        #[convert(moved = "frame.paint.coats")]
        pub(crate) coats: u8,
        #[serde(default)]
        #[convert(nested)]
        pub(crate) hinges: Vec<Hinge>,
        #[serde(default)]
        #[convert(renamed = "handle", nested)]
        pub(crate) knob: Option<Hinge>,
        /// Nothing of this in the hub any more.
        #[serde(default)]
        #[convert(default)]
        pub(crate) curtain: Option<String>,
        /// A name that generated code must not trip over.
        #[serde(default)]
        pub(crate) data: u8,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Convert)]
    #[convert(hub = v2::Hinge, hub_only(oiled))]
    pub(crate) struct Hinge {
        #[convert(renamed = "millimetres", with = super::tenths)]
        pub(crate) tenths: i32,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Convert)]
    #[convert(hub = v2::PaneStatus, hub_only(since))]
    pub(crate) struct PaneStatus {
        #[convert(renamed = "is_open")]
        pub(crate) open: bool,
    }
}

/// Converts between `3x4` and a width and a height.
mod size {
    use super::ConversionError;

    pub(super) fn to(size: String) -> Result<(u16, u16), ConversionError> {
        let (wide, high) = size.split_once('x').ok_or("use <width>x<height>")?;
        Ok((wide.parse()?, high.parse()?))
    }

    pub(super) fn from((wide, high): (u16, u16)) -> Result<String, ConversionError> {
        Ok(format!("{wide}x{high}"))
    }
}

/// Converts between two types of numbers.
mod tenths {
    use std::num::TryFromIntError;

    pub(super) fn to(number: i32) -> Result<i64, TryFromIntError> {
        Ok(number.into())
    }

    pub(super) fn from(number: i64) -> Result<i32, TryFromIntError> {
        number.try_into()
    }
}

fn hub() -> v2::Pane {
    let spec = json!({
        "name": "a", "wide": 3, "high": 4, "frame": {"colour": "red", "paint": {"coats": 2, "maker": "m"}}, "data": 7,
        "hinges": [{"millimetres": 5, "oiled": true}, {"millimetres": 6}], "handle": {"millimetres": 9, "oiled": true},
        "glass": {"milk": 1},
    });
    let mut pane = v2::Pane::new("p", serde_json::from_value(spec).unwrap());
    pane.status = Some(v2::PaneStatus { is_open: true, since: Some("today".into()) });
    pane.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    pane
}

#[test]
fn an_object_goes_to_the_spoke_and_back() {
    let spoke = v1::Pane::convert_from(hub()).unwrap();
    let spec = json!({
        "title": "a", "size": "3x4", "colour": "red", "coats": 2, "hinges": [{"tenths": 5}, {"tenths": 6}],
        "knob": {"tenths": 9}, "curtain": null, "data": 7,
    });
    assert_eq!(serde_json::to_value(&spoke.spec).unwrap(), spec);
    assert_eq!(spoke.status, Some(v1::PaneStatus { open: true }));
    let kept: serde_json::Value =
        serde_json::from_str(&spoke.metadata.annotations.as_ref().unwrap()[ANNOTATION]).unwrap();
    let only = json!({"v2": {
        "spec": {
            "frame": {"colour": "red", "paint": {"coats": 2, "maker": "m"}}, "glass": {"milk": 1},
            "hinges": {"0": {"oiled": true}}, "knob": {"oiled": true},
        },
        "status": {"since": "today"},
    }});
    assert_eq!(kept, only, "what the spoke can't say, and nothing else");
    let again = spoke.convert_to().unwrap();
    assert_eq!((&again.spec, &again.status, &again.metadata), (&hub().spec, &hub().status, &hub().metadata));
}

#[test]
fn what_is_changed_in_the_spoke_counts_and_the_rest_stays() {
    let mut spoke = v1::Pane::convert_from(hub()).unwrap();
    spoke.spec.colour = "blue".into();
    spoke.spec.curtain = Some("lace".into());
    let changed = spoke.clone().convert_to().unwrap();
    assert_eq!(changed.spec.frame, v2::Frame { colour: "blue".into(), ..hub().spec.frame });
    assert_eq!(changed.metadata.annotations.as_ref().unwrap()[ANNOTATION], r#"{"v1":{"spec":{"curtain":"lace"}}}"#);
    assert_eq!(v1::Pane::convert_from(changed).unwrap().spec, spoke.spec);
}

#[test]
fn an_error_names_its_field() {
    let mut spoke = v1::Pane::convert_from(hub()).unwrap();
    spoke.spec.size = "big".into();
    assert_eq!(spoke.convert_to().unwrap_err().to_string(), "spec: size: use <width>x<height>");
    let mut hub = hub();
    hub.spec.hinges[1].millimetres = i64::MAX;
    let error = v1::Pane::convert_from(hub).unwrap_err().to_string();
    assert_eq!(error, "spec: hinges: 1: tenths: out of range integral type conversion attempted");
}

/// One that forgets.
#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Forgetful {
    name: String,
}

impl Convert for Forgetful {
    type Hub = v2::PaneStatus;

    fn into_hub(self, _: &mut Data) -> Result<v2::PaneStatus, ConversionError> {
        Ok(v2::PaneStatus::default())
    }

    fn from_hub(_: v2::PaneStatus, _: &mut Data) -> Result<Self, ConversionError> {
        Ok(Self { name: "x".into() })
    }
}

#[test]
fn the_property_test_finds_what_is_lost() {
    let error = testing::round_trip::<Forgetful>().unwrap_err().to_string();
    assert!(error.starts_with("the conversion from the hub and back is lossy (seed "), "{error}");
}

fn image() -> String {
    "memcached:1.6".to_owned()
}

/// A hub with a field whose type's default isn't valid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct HubServer {
    replicas: i32,
    #[serde(default = "image")]
    image: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Convert)]
#[convert(hub = HubServer, hub_only(image = image))]
struct SpokeServer {
    replicas: i32,
}

#[test]
fn a_field_of_the_hub_has_the_default_of_its_function() {
    let hub = SpokeServer { replicas: 2 }.into_hub(&mut Data::default()).unwrap();
    assert_eq!(hub, HubServer { replicas: 2, image: image() });
    let (mut same, mut other) = (Data::default(), Data::default());
    SpokeServer::from_hub(hub.clone(), &mut same).unwrap();
    SpokeServer::from_hub(HubServer { image: "memcached:1.5".into(), ..hub }, &mut other).unwrap();
    assert_eq!(same, Data::default(), "the default isn't kept");
    assert_ne!(other, Data::default());
}
