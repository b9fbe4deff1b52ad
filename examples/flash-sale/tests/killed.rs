//! S5: orders == sold, also when the service is killed in the middle of a sale.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod running;
mod stores;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flash_sale::shop::Door;
use flash_sale::visitor::Visitor;
use flash_sale::{Answer, Way};
use running::Service;
use rustix::process::Signal;
use stores::Store;
use tidegate_testbed::Random;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const STOCK: i64 = 200;
const BUYERS: i64 = 60;
/// A service that has answered so many is killed at the latest.
const ANSWERS_MAX: u64 = 80;

/// What buyers have been told, and whom to tell when it is enough.
struct Told {
    answers: AtomicU64,
    sold: AtomicU64,
    enough: u64,
    is_enough: Notify,
}

/// Buys, one attempt after the other, until the service is gone or has nothing left.
async fn shop_until_it_is_gone(address: SocketAddr, way: Way, buyer: i64, told: Arc<Told>) -> bool {
    let Ok(mut visitor) = Visitor::arrive(address).await else { return false };
    loop {
        let answer = visitor.buy(Door::Open, way, buyer).await;
        match answer {
            Err(_) => return false,
            Ok(Answer::SoldOut) => return true,
            Ok(Answer::Sold { .. }) => told.sold.fetch_add(1, Ordering::SeqCst),
            Ok(_) => 0,
        };
        if told.answers.fetch_add(1, Ordering::SeqCst) + 1 == told.enough {
            told.is_enough.notify_one();
        }
    }
}

/// One service, killed after `enough` answers. Says how many were told that they have one, and whether all is sold.
async fn round(store: &Store, way: Way, enough: u64) -> (u64, bool) {
    let mut service = Service::start(&["--database", &store.url(), "--stock", &STOCK.to_string()]);
    let told = Arc::new(Told {
        answers: AtomicU64::new(0),
        sold: AtomicU64::new(0),
        enough,
        is_enough: Notify::new(),
    });
    let mut tasks = JoinSet::new();
    for buyer in 0..BUYERS {
        tasks.spawn(shop_until_it_is_gone(service.address, way, buyer, Arc::clone(&told)));
    }
    let mut is_sold_out = false;
    loop {
        tokio::select! {
            () = told.is_enough.notified() => break,
            Some(ended) = tasks.join_next() => {
                is_sold_out |= ended.unwrap();
                if tasks.is_empty() {
                    break;
                }
            }
        }
    }
    service.signal(Signal::KILL);
    assert!(!service.end().0);
    while let Some(ended) = tasks.join_next().await {
        is_sold_out |= ended.unwrap();
    }
    (told.sold.load(Ordering::SeqCst), is_sold_out)
}

/// Kills the service again and again until all is sold; the next one goes on where the last one was.
async fn killed_until_sold_out(store: &Store, seed: u64) {
    let mut random = Random(seed);
    for way in Way::SAFE {
        let database = store.open().await;
        database.restock(u32::try_from(STOCK).unwrap()).await.unwrap();
        database.close().await;
        let (mut told, mut rounds, mut is_sold_out) = (0, 0, false);
        while !is_sold_out {
            rounds += 1;
            let enough = 1 + random.below(ANSWERS_MAX);
            let (sold, none_left) = round(store, way, enough).await;
            (told, is_sold_out) = (told + i64::try_from(sold).unwrap(), none_left);
            let database = store.open().await;
            let tally = database.tally().await.unwrap();
            database.close().await;
            let place = format!("{way}, seed {seed}, round {rounds}, killed after {enough}");
            assert_eq!(tally.orders, tally.sale, "{place}");
            assert!(tally.sale <= STOCK, "{place}: {} sold", tally.sale);
            assert!(told <= tally.orders, "{place}: {told} were told so, {} orders", tally.orders);
            assert!(rounds < 1_000, "{place}: it never ends");
        }
        let database = store.open().await;
        assert_eq!(database.tally().await.unwrap().orders, STOCK, "{way}: all of it goes");
        database.close().await;
        assert!(rounds > 1, "{way}: it was never killed in the middle");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_in_the_middle_has_an_order_for_all_it_sold_on_sqlite() {
    killed_until_sold_out(&Store::sqlite(), 20_251).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_in_the_middle_has_an_order_for_all_it_sold_on_postgres() {
    killed_until_sold_out(&Store::postgres(), 20_252).await;
}
