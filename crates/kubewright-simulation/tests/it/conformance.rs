//! The scenarios for any operator: what they find in operators with a mistake.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::prelude::*;
use kubewright_simulation::{
    Budget, Scenario, World,
    conformance::{self, Subject},
};

use crate::machine::{Behavior, Machine, MachineSpec, register};

struct Fixed;
/// It creates a second instance if it dies before it has noted the first.
struct Forgets;

macro_rules! subject {
    ($name:ident) => {
        impl Subject for $name {
            type Child = ConfigMap;
            type Resource = Machine;

            const AT_MOST_ONCE: bool = true;
            const CHILDREN: usize = 1;
            const NAME: &'static str = "build";
            const REFUSED: &'static str = "ConfigMapRefused";

            fn register(manager: Manager) -> Manager {
                register(manager, Behavior::$name)
            }

            fn sample() -> Machine {
                Machine::new(Self::NAME, MachineSpec {})
            }

            fn is_settled(world: &World) -> bool {
                let machine = world.get::<Machine>(Self::NAME);
                machine.is_some_and(|it| it.status.is_some_and(|status| status.instance.is_some()))
            }
        }
    };
}

subject!(Fixed);
subject!(Forgets);

fn findings(scenario: &Scenario) -> Vec<String> {
    let search = scenario.search(&Budget::default().runs(60)).unwrap();
    let findings = search.failures.into_iter().flat_map(|failure| failure.outcome.findings);
    findings.map(|finding| finding.to_string()).collect()
}

#[test]
fn a_fixed_operator_passes() {
    for scenario in [
        conformance::steady::<Fixed>(),
        conformance::held::<Fixed>(),
        conformance::recreated::<Fixed>(),
        // It creates an instance for a machine that is being deleted if its status was wiped.
        conformance::foreground::<Fixed>().without_faults(),
    ] {
        assert_eq!(findings(&scenario), [""; 0], "{}", scenario.name());
    }
}

#[test]
fn a_second_instance_is_found() {
    let found = findings(&conformance::steady::<Forgets>());
    assert!(found.contains(&"always: no child is created twice".to_owned()), "{found:?}");
}

#[test]
fn a_refusal_that_is_not_reported_is_found() {
    assert_eq!(findings(&conformance::refused::<Fixed>()), ["until: build is reported to be refused"]);
}
