//! Where the buyers buy: at the shop itself, or at its service on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::http;
use crate::http_buyer::HttpBuyer;
use crate::reply::SaleReply;
use crate::shop::{Access, Shop};
use crate::way::Way;

pub(super) struct Counter {
    shop: Arc<Shop>,
    service: Option<Service>,
}

struct Service {
    address: SocketAddr,
    ending: oneshot::Sender<()>,
    ended: JoinHandle<std::io::Result<()>>,
}

/// A buyer that buys in this process or over HTTP.
pub(super) enum Buyer {
    Here(Arc<Shop>),
    Online(HttpBuyer),
}

impl Counter {
    pub(super) async fn open(shop: Arc<Shop>, is_http: bool) -> anyhow::Result<Self> {
        let service = if is_http { Some(Service::start(Arc::clone(&shop)).await?) } else { None };
        Ok(Self { shop, service })
    }

    /// Returns a buyer, which is connected if it buys over HTTP.
    pub(super) async fn arrive(&self) -> anyhow::Result<Buyer> {
        match &self.service {
            None => Ok(Buyer::Here(Arc::clone(&self.shop))),
            Some(service) => Ok(Buyer::Online(HttpBuyer::arrive(service.address).await?)),
        }
    }

    pub(super) const fn is_http(&self) -> bool {
        self.service.is_some()
    }

    pub(super) async fn close(self) -> anyhow::Result<()> {
        let Some(service) = self.service else { return Ok(()) };
        // If the service has already failed, the next line returns its error.
        let _ = service.ending.send(());
        service.ended.await.context("the service panicked")?.context("the service failed")
    }
}

impl Service {
    async fn start(shop: Arc<Shop>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (ending, ended) = oneshot::channel::<()>();
        let service = axum::serve(listener, http::router(shop)).with_graceful_shutdown(async {
            // An error means that the sender was dropped, which ends the service too.
            let _ = ended.await;
        });
        Ok(Self { address, ending, ended: tokio::spawn(service.into_future()) })
    }
}

impl Buyer {
    pub(super) async fn buy(
        &mut self,
        access: Access,
        way: Way,
        buyer: i64,
    ) -> anyhow::Result<SaleReply> {
        match self {
            Self::Here(shop) => Ok(shop.buy(access, way, buyer).await?),
            Self::Online(visitor) => visitor.buy(access, way, buyer).await,
        }
    }
}
