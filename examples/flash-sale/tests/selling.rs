//! S5: every way except the naive one never oversells.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod stores;

use std::collections::HashSet;
use std::sync::Arc;

use flash_sale::entrance::{Entrance, Rules};
use flash_sale::selling::sell;
use flash_sale::shop::Access;
use flash_sale::{Database, SaleReply, Shop, Way};
use stores::Store;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const BUYERS: i64 = 2_000;
const STOCK: u32 = 100;

fn shop(database: Database) -> Arc<Shop> {
    let rules =
        Rules { per_buyer: "1/h".parse().unwrap(), rate: "100000/s burst 100000".parse().unwrap() };
    Arc::new(Shop { database, entrance: Entrance::new(rules) })
}

/// All buyers try to buy at the same moment.
async fn rush(shop: &Arc<Shop>, access: Access, way: Way) -> Vec<SaleReply> {
    let all_ready = Arc::new(Barrier::new(usize::try_from(BUYERS).unwrap()));
    let mut tasks = JoinSet::new();
    for buyer in 0..BUYERS {
        let (shop, all_ready) = (Arc::clone(shop), Arc::clone(&all_ready));
        tasks.spawn(async move {
            all_ready.wait().await;
            shop.buy(access, way, buyer).await.unwrap()
        });
    }
    tasks.join_all().await
}

async fn never_oversells(store: &Store) {
    for way in Way::SAFE {
        for access in Access::BOTH {
            let shop = shop(store.open().await);
            shop.database.restock(STOCK).await.unwrap();
            let answers = rush(&shop, access, way).await;
            let tally = shop.database.tally().await.unwrap();
            shop.database.close().await;
            let orders: HashSet<i64> = answers.iter().filter_map(order).collect();
            let sold = i64::try_from(orders.len()).unwrap();
            assert_eq!(
                (tally.orders, tally.sale),
                (sold, sold),
                "{way} {access:?}: replies, orders and count"
            );
            assert!(sold <= i64::from(STOCK), "{way} {access:?}: {sold} sold");
            assert_eq!(
                answers.iter().filter(|answer| order(answer).is_some()).count(),
                orders.len()
            );
            let conflicts = answers.iter().filter(|answer| **answer == SaleReply::Conflict).count();
            if matches!(way, Way::Condition | Way::ForUpdate) {
                assert_eq!(
                    (sold, conflicts),
                    (i64::from(STOCK), 0),
                    "{way} {access:?}: all items are sold"
                );
            }
            // An optimistic buyer may have lost the last item, but then another buyer has won it.
            assert!(
                sold == i64::from(STOCK) || conflicts > 0,
                "{way} {access:?}: the reply is sold out although items are left"
            );
        }
    }
}

fn order(answer: &SaleReply) -> Option<i64> {
    match answer {
        SaleReply::Sold { order, .. } => Some(*order),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_safe_way_sells_more_than_there_is_to_2000_buyers_at_once_on_sqlite() {
    never_oversells(&Store::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_safe_way_sells_more_than_there_is_to_2000_buyers_at_once_on_postgres() {
    never_oversells(&Store::postgres()).await;
}

/// The number of buyers that read before the first one writes.
const READERS: usize = 8;

/// Returns the replies to [`READERS`] buyers of one item, in a way that reads first.
async fn all_read_then_all_write(database: &Database, way: Way) -> Vec<SaleReply> {
    database.restock(1).await.unwrap();
    let have_read = Arc::new(Barrier::new(READERS));
    let mut tasks = JoinSet::new();
    for buyer in 0..READERS {
        let mut connection = database.connection().await.unwrap();
        let (dialect, have_read) = (database.dialect(), Arc::clone(&have_read));
        tasks.spawn(async move {
            let together = async {
                have_read.wait().await;
            };
            let buyer = i64::try_from(buyer).unwrap();
            sell(&mut connection, dialect, way, buyer, together).await.unwrap()
        });
    }
    tasks.join_all().await
}

async fn an_outdated_read_must_be_checked(store: &Store) {
    let database = store.open().await;
    let answers = all_read_then_all_write(&database, Way::Naive).await;
    assert!(answers.iter().all(|answer| order(answer).is_some()), "{answers:?}");
    let tally = database.tally().await.unwrap();
    assert_eq!((tally.orders, tally.sale, tally.oversold()), (8, 1, 7), "8 orders for one item");
    for way in [Way::OldValue, Way::Version] {
        let answers = all_read_then_all_write(&database, way).await;
        let lost = answers.iter().filter(|answer| **answer == SaleReply::Conflict).count();
        assert_eq!(lost, READERS - 1, "{way}: {answers:?}");
        let tally = database.tally().await.unwrap();
        assert_eq!((tally.orders, tally.sale, tally.oversold()), (1, 1, 0), "{way}");
    }
    database.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_naive_way_oversells_where_the_optimistic_ways_have_one_winner_on_sqlite() {
    an_outdated_read_must_be_checked(&Store::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_naive_way_oversells_where_the_optimistic_ways_have_one_winner_on_postgres() {
    an_outdated_read_must_be_checked(&Store::postgres()).await;
}

#[tokio::test]
async fn reopening_the_database_continues_the_sale() {
    let store = Store::sqlite();
    let database = store.open().await;
    database.put_on_sale(2).await.unwrap();
    assert!(order(&database.sell(Way::Condition, 1).await.unwrap()).is_some());
    database.close().await;
    let database = store.open().await;
    database.put_on_sale(2).await.unwrap();
    assert!(order(&database.sell(Way::Condition, 1).await.unwrap()).is_some());
    assert_eq!(database.sell(Way::Condition, 1).await.unwrap(), SaleReply::SoldOut);
    database.close().await;
}

#[tokio::test]
async fn an_empty_sale_is_sold_out_in_every_way() {
    let store = Store::sqlite();
    let database = store.open().await;
    database.restock(0).await.unwrap();
    for way in Way::ALL {
        assert_eq!(database.sell(way, 1).await.unwrap(), SaleReply::SoldOut, "{way}");
    }
    database.close().await;
}
