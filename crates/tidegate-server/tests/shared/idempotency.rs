//! A request with an id is charged once by all servers and protocols together, in memory and in Redis.

use crate::harness::Harness;
use tidegate_testbed::RedisServer;

/// Limits that refill so slowly that nothing changes while the test runs.
const LIMITS: &str = "[limits.a]\nrule = \"1/week burst 10\"\n\
                      [limits.log]\nrule = \"10/week sliding-log\"\n\
                      [limits.queue]\nrule = \"1/week queue capacity 10\"\n";

/// Requests in order: the cost, the id or none, whether the request is allowed, and how much remains.
const REQUESTS: [(u64, &str, bool, u64); 11] = [
    (3, "one", true, 7),
    (3, "one", true, 7),
    (2, "", true, 5),
    (3, "one", true, 7),
    (3, "two", true, 2),
    (3, "three", false, 2),
    (3, "three", false, 2),
    // The same id with another cost is another request.
    (2, "one", true, 0),
    (3, "one", true, 7),
    (2, "one", true, 0),
    (1, "four", false, 0),
];

async fn by_resp(harness: &mut Harness, limit: &str, cost: u64, id: &str) -> (bool, u64) {
    let id = if id.is_empty() { String::new() } else { format!(" ID {id}") };
    let said = harness.say(&[&format!("TIDE.CHECK {limit} key COST {cost}{id}")]).await;
    let numbers: Vec<&str> = said.split(" :").collect();
    let remaining = numbers.get(3).and_then(|number| number.parse().ok());
    (numbers.get(1) == Some(&"1"), remaining.unwrap_or_else(|| panic!("{said}")))
}

async fn by_http(harness: &Harness, limit: &str, cost: u64, id: &str) -> (bool, u64) {
    let id = if id.is_empty() { String::new() } else { format!(r#","id":"{id}""#) };
    let body = format!(r#"{{"limit":"{limit}","key":"key","cost":{cost}{id}}}"#);
    let (status, said) = harness.post("/v1/check", &body).await;
    let (_, rest) = said.split_once(r#""remaining":"#).unwrap_or_else(|| panic!("{said}"));
    let remaining = rest.split(',').next().and_then(|number| number.parse().ok());
    (status == 200, remaining.unwrap_or_else(|| panic!("{said}")))
}

/// Sends [`REQUESTS`] to the servers in turn, over HTTP and RESP in turn, and asserts the answers.
async fn assert_answers(mut harnesses: Vec<Harness>, limit: &str) {
    for (turn, (cost, id, passes, remaining)) in REQUESTS.into_iter().enumerate() {
        let count = harnesses.len();
        let harness = &mut harnesses[turn / 2 % count];
        let said = match turn % 2 {
            0 => by_http(harness, limit, cost, id).await,
            _ => by_resp(harness, limit, cost, id).await,
        };
        assert_eq!(said, (passes, remaining), "{limit}: request {turn}, {cost} {id}");
    }
}

#[tokio::test]
async fn in_memory_a_request_with_an_id_is_charged_once() {
    for limit in ["a", "log"] {
        assert_answers(vec![Harness::in_memory(LIMITS)], limit).await;
    }
}

#[tokio::test]
async fn in_redis_a_request_with_an_id_is_charged_once_by_all_servers() {
    let redis = RedisServer::start();
    for limit in ["a", "log"] {
        let harnesses = vec![
            Harness::new(&redis.url(), LIMITS).await,
            Harness::new(&redis.url(), LIMITS).await,
        ];
        assert_answers(harnesses, limit).await;
    }
}

/// The repeated request keeps its place in the queue and does not get a second one.
#[tokio::test]
async fn a_repeated_request_that_waits_gets_the_same_wait() {
    let redis = RedisServer::start();
    for mut harness in [Harness::in_memory(LIMITS), Harness::new(&redis.url(), LIMITS).await] {
        harness.say(&["TIDE.CHECK queue key COST 4"]).await;
        let first = harness.say(&["TIDE.CHECK queue key COST 2 ID one"]).await;
        assert!(first.starts_with("*5 :1 "), "{first}");
        harness.say(&["TIDE.CHECK queue key"]).await;
        assert_eq!(harness.say(&["TIDE.CHECK queue key COST 2 ID one"]).await, first);
    }
}

#[tokio::test]
async fn a_pipeline_of_the_same_request_is_charged_once() {
    let redis = RedisServer::start();
    for mut harness in [Harness::in_memory(LIMITS), Harness::new(&redis.url(), LIMITS).await] {
        let said = harness.say(&["TIDE.CHECK a key COST 3 ID one"; 20]).await;
        assert_eq!(said.matches("*5 :1 :10 :7 ").count(), 20, "{said}");
        let left = harness.say(&["TIDE.PEEK a key COST 0"]).await;
        assert!(left.starts_with("*5 :1 :10 :7 "), "{left}");
    }
}
