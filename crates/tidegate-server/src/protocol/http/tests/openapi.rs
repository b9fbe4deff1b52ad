//! The `OpenAPI` description matches the routes.

use super::Harness;
use crate::protocol::http::route::ROUTES;
use std::collections::BTreeSet;

#[tokio::test]
async fn every_route_is_described_and_every_description_is_a_route() {
    let document = Harness::new().get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(|method| (path.clone(), method.to_uppercase()))
        })
        .collect();
    let routes: BTreeSet<(String, String)> =
        ROUTES.iter().map(|(path, method, _)| ((*path).to_owned(), method.to_string())).collect();
    assert_eq!(described, routes);
}

#[tokio::test]
async fn every_reference_in_the_description_resolves() {
    let reply = Harness::new().get("/openapi.json").await;
    let document = reply.json();
    let references: Vec<&str> = reply
        .text
        .split("\"$ref\": \"#")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(!references.is_empty());
    for reference in references {
        assert!(document.pointer(reference).is_some(), "{reference}");
    }
}

#[tokio::test]
async fn the_start_page_names_every_route() {
    let home = Harness::new().get("/").await.text;
    for (path, method, _) in ROUTES.iter().filter(|(path, ..)| *path != "/") {
        let is_named = home.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(method.as_str()) && words.next() == Some(path)
        });
        assert!(is_named, "{method} {path}");
    }
}
