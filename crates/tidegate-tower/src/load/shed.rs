//! The layer that rejects the least important requests when the machine is overloaded.

use super::layer::LoadLayer;
use super::settings::{Enter, Load};
use crate::head::Head;
use crate::response::body::BodyGuard;
use std::future::{Ready, ready};
use std::sync::Arc;
use tidegate::load::{Priority, Shed, ShedPermit, Shedder};
use tidegate::{Clock, Decision, Retry, SystemClock, Verdict};

/// Rejects requests when the machine is overloaded, the least important first. A request is in flight until the body of its
/// response has ended.
///
/// ```
/// use axum::{Router, routing::get};
/// use tidegate::load::{Priority, Shedder};
/// use tidegate_tower::ShedLayer;
///
/// let shedder = Shedder::builder().in_flight_max(500).build();
/// let app: Router = Router::new()
///     .route("/pay", get(|| async { "paid" }))
///     .route("/suggestions", get(|| async { "shoes" }))
///     .layer(ShedLayer::new(shedder).priority(|head| match head.path() {
///         "/pay" => Priority::Critical,
///         "/suggestions" => Priority::Sheddable,
///         _ => Priority::Normal,
///     }));
/// ```
pub type ShedLayer<C = SystemClock> = LoadLayer<Shedder<C>>;

impl<C: Clock> Load for Shedder<C> {
    type Permit = ShedPermit<C>;
    type Refusal = Shed;
    type Entering = Ready<Result<ShedPermit<C>, Shed>>;

    const NAME: &'static str = "shed";

    /// The decisions of a shedder have no numbers, and it is unknown when the load ends.
    fn decision(entered: Result<&ShedPermit<C>, &Shed>) -> (Decision, Option<Priority>) {
        match entered {
            Ok(permit) => (Decision::without_state(Verdict::Allow), Some(permit.priority())),
            Err(shed) => {
                let full = Decision::without_state(Verdict::Deny(Retry::OnRelease));
                (full, Some(shed.priority()))
            }
        }
    }
}

impl<C: Clock> BodyGuard for ShedPermit<C> {}

impl<C: Clock> LoadLayer<Shedder<C>> {
    /// Makes a layer that is limited by this shedder. Default: all requests are [normal](Priority::Normal).
    pub fn new(shedder: Shedder<C>) -> Self {
        let enter = enter(shedder.clone(), |_| Priority::Normal);
        Self::over(shedder, enter, Arc::new(|permit, _, _| Some(permit)))
    }

    /// Sets the priority of each request. Do not let clients choose it, unless you trust them. If it depends on their address,
    /// set the [trusted proxies](Self::trusted_proxies).
    pub fn priority(
        self,
        priority: impl Fn(&Head<'_>) -> Priority + Send + Sync + 'static,
    ) -> Self {
        let enter = enter(self.load.clone(), priority);
        self.with(|settings| settings.enter = enter)
    }
}

fn enter<C: Clock>(
    shedder: Shedder<C>,
    priority: impl Fn(&Head<'_>) -> Priority + Send + Sync + 'static,
) -> Enter<Shedder<C>> {
    Arc::new(move |head| ready(shedder.try_enter(priority(head))))
}
