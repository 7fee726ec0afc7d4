//! An hour that comes twice.
//!
//! The operator starts a report at half past two, local time. It compares local times, and notes for which minute it
//! has started one. In the night in which summer time ends there are two such minutes, and two reports. In the night in
//! which it begins, half past two doesn't occur, and no report starts.
//!
//! The fixed operator has one report for each local date, when half past two has passed.

use jiff::tz::TimeZone;

use crate::kit::*;

bug!("time zones", [
    "https://github.com/kelektiv/node-cron/issues/563",
    "https://github.com/rundeck/rundeck/issues/3234",
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Report", namespaced)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportSpec {
    /// The time zone as in POSIX, such as `CET-1CEST,M3.5.0,M10.5.0/3`.
    time_zone: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Report> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, report: &Report, ctx: &Context<Report>) -> Result<Action, ClientError> {
        let now = ctx.now();
        let zone = TimeZone::posix(&report.spec.time_zone).unwrap_or(TimeZone::UTC);
        let local = now.to_zoned(zone).datetime();
        let (minutes, date) = (i32::from(local.hour()) * 60 + i32::from(local.minute()), local.date().to_string());
        let name = format!("{}-{date}", report.name_any());
        let name = if self.fixed { name } else { format!("{name}-{}", now.as_second() / 300) };
        let is_due = if self.fixed { minutes >= 150 } else { (150..155).contains(&minutes) };
        if is_due && ctx.get::<ConfigMap>(&ctx.key().sibling(&name))?.is_none() {
            ctx.get_or_create_child(config_map(named(&name), "date", &date)).await?;
        }
        Ok(Action::requeue_after(Duration::from_secs(300)))
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Report>().controller(Controller::<Report>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.always("one report a day", |world| {
        let maps = world.list::<ConfigMap>();
        let same = |one: &ConfigMap, other: &ConfigMap| {
            entry(one, "date") == entry(other, "date") && one.metadata.owner_references == other.metadata.owner_references
        };
        let dated = || maps.iter().filter(|map| !entry(map, "date").is_empty());
        dated().all(|one| dated().filter(|other| same(one, other)).count() == 1)
    });
    // Summer time that ends on the last day of January at three o'clock.
    sim.apply(&manifest("Report", "sales", json!({"timeZone": "AAA0BBB,J10/2,J31/3"}))).await;
    sim.advance(24.hours()).await;
}
