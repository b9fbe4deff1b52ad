//! S5: the number of orders equals the number of sold items, even if the service is killed during a sale to 2000 buyers at
//! once.
//!
//! Always   All four ways that never oversell, on both databases, with and without limits.
//! Always   All buyers are connected before the first one tries to buy, and the buyer that gets the last counted reply kills
//!          the service at once. `TIDEGATE_FULL=1` kills it until all is sold, in
//!          two sales of each kind, as `cargo xtask soak` does.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod running;
mod stores;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flash_sale::http_buyer::{HttpBuyer, raise_descriptor_limit};
use flash_sale::shop::Access;
use flash_sale::{SaleReply, Way};
use running::Service;
use rustix::process::Signal;
use stores::Store;
use tidegate::{Clock as _, SystemClock};
use tidegate_testbed::Random;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const STOCK: i64 = 200;
const BUYERS: u32 = 2_000;
/// Maximum number of replies of the database before the service is killed.
const ANSWERS_MAX: u64 = 120;
/// The token bucket before the database.
const RATE: u64 = 400;
const BURST: u64 = 20;

/// Returns the number of sales of each kind, and how often the service is killed in each.
fn size() -> (u64, u64) {
    let is_full = std::env::var_os("TIDEGATE_FULL").is_some_and(|value| value == "1");
    if is_full { (2, u64::MAX) } else { (1, 2) }
}

/// One service, and the replies to its buyers.
struct Round {
    service: Mutex<Option<Service>>,
    access: Access,
    way: Way,
    /// The number of replies of the database after which the service is killed.
    enough: u64,
    answers: AtomicU64,
    sold: AtomicU64,
}

impl Round {
    /// Counts a reply of the database; the last one kills the service.
    fn answered(&self) {
        if self.answers.fetch_add(1, Ordering::SeqCst) + 1 == self.enough {
            self.service.lock().unwrap().as_mut().unwrap().signal(Signal::KILL);
        }
    }

    /// Buys, one attempt after the other, until the service is killed, denies, or has sold out. Returns whether it has sold out.
    async fn buy_until_end(&self, mut visitor: HttpBuyer, buyer: i64) -> bool {
        loop {
            match visitor.buy(self.access, self.way, buyer).await {
                Ok(SaleReply::SoldOut) => {
                    self.answered();
                    return true;
                }
                Ok(SaleReply::Sold { .. }) => {
                    self.sold.fetch_add(1, Ordering::SeqCst);
                }
                Ok(SaleReply::Conflict) => {}
                Ok(SaleReply::Busy { .. } | SaleReply::TooMany { .. }) | Err(_) => return false,
            }
            self.answered();
        }
    }
}

/// The result of a round.
struct SaleResult {
    /// The number of replies "sold".
    sold: i64,
    is_sold_out: bool,
    was_killed: bool,
}

/// Runs one service with 2000 buyers, and kills it after `enough` answers of its database.
async fn round(store: &Store, (way, access): (Way, Access), enough: u64) -> SaleResult {
    let (stock, rate) = (STOCK.to_string(), format!("{RATE}/s burst {BURST}"));
    let words = ["--database", &store.url(), "--stock", &stock, "--rate", &rate];
    let (clock, service) = (SystemClock::new(), Service::start(&words));
    let (opened, address) = (clock.now(), service.address);
    let round = Arc::new(Round {
        service: Mutex::new(Some(service)),
        access,
        way,
        enough,
        answers: AtomicU64::new(0),
        sold: AtomicU64::new(0),
    });
    let start = Arc::new(Barrier::new(usize::try_from(BUYERS).unwrap()));
    let mut tasks = JoinSet::new();
    for buyer in 0..BUYERS {
        let visitor = HttpBuyer::arrive(address).await.unwrap();
        let (round, start) = (Arc::clone(&round), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            round.buy_until_end(visitor, i64::from(buyer)).await
        });
    }
    let is_sold_out = tasks.join_all().await.contains(&true);
    let answers = round.answers.load(Ordering::SeqCst);
    let may = BURST + clock.now().since(opened).as_micros().div_ceil(1_000_000 / RATE);
    assert!(
        access == Access::Open || answers <= may,
        "{answers} attempts passed limits that admit {may}"
    );
    let mut service = round.service.lock().unwrap().take().unwrap();
    let was_killed = answers >= enough;
    if !was_killed {
        service.signal(Signal::KILL);
    }
    assert!(!service.end().0);
    let sold = i64::try_from(round.sold.load(Ordering::SeqCst)).unwrap();
    SaleResult { sold, is_sold_out, was_killed }
}

/// Kills the service up to `kills` times, until all items are sold. Each further service continues the sale.
async fn killed_until_sold_out(
    store: &Store,
    kind: (Way, Access),
    kills: u64,
    random: &mut Random,
) {
    let database = store.open().await;
    database.restock(u32::try_from(STOCK).unwrap()).await.unwrap();
    database.close().await;
    let (mut replies, mut rounds, mut in_the_middle, mut is_sold_out) = (0, 0, 0, false);
    while !is_sold_out {
        let enough = if rounds < kills { 1 + random.below(ANSWERS_MAX) } else { u64::MAX };
        rounds += 1;
        let result = round(store, kind, enough).await;
        (replies, is_sold_out) = (replies + result.sold, result.is_sold_out);
        let database = store.open().await;
        let tally = database.tally().await.unwrap();
        database.close().await;
        let context = format!("{kind:?}, round {rounds}, killed after {enough}");
        assert_eq!(tally.orders, tally.sale, "{context}");
        assert!(tally.sale <= STOCK, "{context}: {} sold", tally.sale);
        assert!(replies <= tally.orders, "{context}: {replies} replies, {} orders", tally.orders);
        assert!(!is_sold_out || tally.sale == STOCK, "{context}: only {} sold", tally.sale);
        assert!(rounds < 1_000, "{context}: the sale never ends");
        in_the_middle += u64::from(result.was_killed && (1..STOCK).contains(&tally.sale));
    }
    assert!(in_the_middle > 0, "{kind:?}: the service was never killed during the sale");
}

async fn assert_every_sale_has_an_order(store: &Store, seed: u64) {
    raise_descriptor_limit(BUYERS).unwrap();
    let (sales, kills) = size();
    let mut random = Random(seed);
    for _ in 0..sales {
        for way in Way::SAFE {
            for access in Access::BOTH {
                killed_until_sold_out(store, (way, access), kills, &mut random).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_among_2000_buyers_has_an_order_for_every_sale_on_sqlite() {
    assert_every_sale_has_an_order(&Store::sqlite(), 20_251).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_among_2000_buyers_has_an_order_for_every_sale_on_postgres() {
    assert_every_sale_has_an_order(&Store::postgres(), 20_252).await;
}
