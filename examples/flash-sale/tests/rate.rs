//! S5: with the limiter, the database sees no more than the configured rate.
//!
//! Visits are counted at the pool, and time is the limiter's.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod stores;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flash_sale::entrance::{Entrance, Rules};
use flash_sale::shop::Access;
use flash_sale::{SaleReply, Shop, Way};
use stores::Store;
use tidegate::{Clock as _, ManualClock, Span};
use tidegate_testbed::{PATIENCE, eventually};
use tokio::task::JoinSet;

const BUYERS: i64 = 2_000;
const STOCK: u32 = 100;
const RATE: u64 = 400;
const BURST: u64 = 20;
const REFUSED: u64 = 2_000 - BURST - RATE;

async fn no_more_than_the_rate(store: &Store, way: Way) {
    let clock = ManualClock::new();
    let rules = Rules {
        per_buyer: "1/10s".parse().unwrap(),
        rate: format!("{RATE}/s burst {BURST}").parse().unwrap(),
    };
    let entrance = Entrance::with_clock(rules, clock.clone());
    let shop = Arc::new(Shop { database: store.open().await, entrance });
    shop.database.restock(STOCK).await.unwrap();
    let (opened, before) = (clock.now(), shop.database.visits());
    let refused = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for buyer in 0..BUYERS {
        let (shop, refused) = (Arc::clone(&shop), Arc::clone(&refused));
        tasks.spawn(async move {
            let answer = shop.buy(Access::Guarded, way, buyer).await.unwrap();
            let is_refused = matches!(answer, SaleReply::Busy { .. });
            refused.fetch_add(u64::from(is_refused), Ordering::Relaxed);
            matches!(answer, SaleReply::Sold { .. })
        });
    }
    // As many buyers as the rate wait for a token of the next second; all others are denied. All must have tried before the
    // clock moves, because a later buyer would get a token of the next second.
    let has_come = || (clock.sleepers() as u64, refused.load(Ordering::Relaxed)) == (RATE, REFUSED);
    eventually("every buyer waits for a token or is denied", PATIENCE, has_come);
    loop {
        let due = BURST + clock.now().since(opened).as_micros() * RATE / 1_000_000;
        // All attempts with a token reach the database, and no other attempt does.
        let visits = || shop.database.visits() - before;
        eventually("the attempts with a token are at the database", PATIENCE, || visits() >= due);
        let at = clock.now().since(opened);
        // An admitted attempt that has not reached the database yet no longer waits.
        let waiting = clock.sleepers() as u64;
        assert_eq!((visits(), waiting), (due, BURST + RATE - due), "{at} after the opening");
        if waiting == 0 {
            break;
        }
        clock.advance(Duration::from_millis(25));
    }
    assert_eq!(clock.now().since(opened), Span::from_secs(1));
    let sold = tasks.join_all().await.into_iter().filter(|is_sold| *is_sold).count();
    assert_eq!(refused.load(Ordering::Relaxed), REFUSED);
    // The order of the attempts does not change how many items are sold.
    let (tally, sold) = (shop.database.tally().await.unwrap(), i64::try_from(sold).unwrap());
    assert_eq!(tally.orders, sold, "{way}: orders and replies");
    if way != Way::Naive {
        assert_eq!(tally.sale, sold, "{way}: sales and replies");
        assert!((1..=STOCK.into()).contains(&sold), "{way}: {sold} sold");
    }
    shop.database.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_sees_the_burst_and_then_the_rate_and_nothing_else() {
    let store = Store::sqlite();
    for way in Way::ALL {
        no_more_than_the_rate(&store, way).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_sees_the_burst_and_then_the_rate_and_nothing_else() {
    let store = Store::postgres();
    for way in Way::ALL {
        no_more_than_the_rate(&store, way).await;
    }
}
