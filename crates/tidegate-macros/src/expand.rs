//! The expansion: the same function, with a statement before its body that decides the limits.
//!
//! Always   One rate limit without a wait becomes one call of `check_n` on a static, so that it costs as much as a call
//!          written by hand.
//! Always   Generated names are hygienic, and statics are in a block of their own, so the user's code cannot see them.
//! Always   No borrow of a key or a cost lives across a generated `await`.

use crate::arguments::{Arguments, Limit, Wait};
use crate::function::Function;
use crate::rule::Facts;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprClosure};

/// The error of an attribute, with the unchanged function, so that its callers do not get errors as well.
pub(crate) struct Refusal {
    error: syn::Error,
    item: TokenStream,
}

impl Refusal {
    pub(crate) fn into_tokens(self) -> TokenStream {
        let (error, item) = (self.error.to_compile_error(), self.item);
        quote!(#error #item)
    }
}

pub(crate) fn expand(arguments: TokenStream, item: &TokenStream) -> Result<TokenStream, Refusal> {
    let refuse = |error, item: &TokenStream| Refusal { error, item: item.clone() };
    let mut function: Function = syn::parse2(item.clone()).map_err(|error| refuse(error, item))?;
    // Also after an error: each of the other attributes would report the same problem of the function again.
    let others = function.take_limits();
    let bare = function.as_written();
    let read = || {
        function.check()?;
        let mut limits = vec![syn::parse2::<Arguments>(arguments)?];
        limits.extend(others?);
        let otherwise = Otherwise::of(&limits, &function)?;
        let is_async = function.signature.asyncness.is_some();
        Ok(admission(&limits, &otherwise, is_async))
    };
    let admission = read().map_err(|error| refuse(error, &bare))?;
    Ok(function.with_statement(&admission))
}

impl Function {
    fn as_written(&self) -> TokenStream {
        let Self { attributes, inner, visibility, signature, body } = self;
        if inner.is_empty() {
            return quote!(#(#attributes)* #visibility #signature #body);
        }
        quote!(#(#attributes)* #visibility #signature { #(#inner)* #body })
    }

    /// Writes the function, with its body after the statement. The body stays a block, so that its items come first in it.
    fn with_statement(&self, statement: &TokenStream) -> TokenStream {
        let Self { attributes, inner, visibility, signature, body } = self;
        quote!(#(#attributes)* #visibility #signature { #(#inner)* #statement #body })
    }
}

/// The value that is returned after a denial.
enum Otherwise<'a> {
    Value(&'a Expr),
    /// An expression of the denial.
    Of(&'a ExprClosure),
    /// The conversion of the return type, whose position is given.
    Converted(Span),
}

impl<'a> Otherwise<'a> {
    fn of(limits: &'a [Arguments], function: &Function) -> syn::Result<Self> {
        let mut values = limits.iter().filter_map(|limit| limit.otherwise.as_ref());
        let first = values.next();
        if let Some(second) = values.next() {
            let what = "the limits of a function are decided as one, so there is one `else` for all of them";
            return Err(syn::Error::new(second.span(), what));
        }
        match first {
            Some(Expr::Closure(closure)) if closure.inputs.len() == 1 => Ok(Self::Of(closure)),
            Some(value) => Ok(Self::Value(value)),
            None if function.has_opaque_output() => {
                let what = "what is returned when the limit denies the call? Add `else = …` to `#[limit]`, a value \
                            of the same type as the function's";
                Err(syn::Error::new(function.output_span(), what))
            }
            None => Ok(Self::Converted(function.output_span())),
        }
    }

    /// Writes a pattern for the denial, and the statement that returns.
    fn arm(&self) -> (TokenStream, TokenStream) {
        match self {
            // clippy warns about `return ()`.
            Self::Value(Expr::Tuple(nothing)) if nothing.elems.is_empty() => {
                (quote!(_), quote!(return))
            }
            Self::Value(value) => (quote!(_), quote!(return #value)),
            Self::Of(closure) => {
                let (input, body) = (&closure.inputs[0], &closure.body);
                let denied = ours("denied");
                (quote!(#denied), quote!({ let #input = #denied; return #body }))
            }
            Self::Converted(place) => {
                let denied = ours("denied");
                let value = quote_spanned!(*place=> ::tidegate::FromDenied::from_denied(#denied));
                (quote!(#denied), quote!(return #value))
            }
        }
    }
}

/// Writes the statement that admits the call or returns.
fn admission(limits: &[Arguments], otherwise: &Otherwise<'_>, is_async: bool) -> TokenStream {
    let (denied, end) = otherwise.arm();
    let statics = limits.iter().enumerate().map(|(number, limit)| limit.home(number));
    let statics: TokenStream = statics.collect();
    if let [limit] = limits
        && let Some(decision) = limit.decision()
    {
        let answer = ours("answer");
        return quote!({
            #statics
            let #answer = #decision.into_result();
            if let ::core::result::Result::Err(#denied) = #answer { #end }
        });
    }
    let (ask, permit) = (ours("ask"), ours("__permit"));
    let (asked, answer) = match limits {
        [limit] => (limit.ask(0), limit.answer(&ask, is_async)),
        limits => {
            let wants = limits.iter().enumerate().map(|(number, limit)| limit.want(number));
            (quote!([#(#wants),*]), by(&ask, is_async, "pass_all"))
        }
    };
    quote! {
        let #permit = {
            #statics
            let #ask = #asked;
            match #answer {
                ::core::result::Result::Ok(#permit) => #permit,
                ::core::result::Result::Err(#denied) => #end,
            }
        };
    }
}

impl Arguments {
    /// Writes the function's own limiter, if it has one.
    fn home(&self, number: usize) -> TokenStream {
        let Limit::Rule(text, _) = &self.limit else { return TokenStream::new() };
        let name = home(number);
        let (kind, make) = match self.key {
            Some(_) => (quote!(Limiter), quote!(limiter)),
            None => (quote!(Gate), quote!(gate)),
        };
        quote! {
            static #name: ::tidegate::__limit::LazyLock<::tidegate::#kind> =
                ::tidegate::__limit::LazyLock::new(|| ::tidegate::__limit::#make(#text));
        }
    }

    /// Writes a plain decision, for rules without permits and waits.
    fn decision(&self) -> Option<TokenStream> {
        let Limit::Rule(_, Facts { holds: false, waits: false }) = &self.limit else { return None };
        if self.wait.is_some() {
            return None;
        }
        let (name, cost) = (home(0), self.cost());
        let key = self.key.as_ref().map(|key| quote!(&(#key),));
        Some(quote!(#name.check_n(#key #cost)))
    }

    /// Writes the request.
    fn ask(&self, number: usize) -> TokenStream {
        let limiter = match &self.limit {
            Limit::Rule(..) => home(number).to_token_stream(),
            Limit::By(limiter) => quote!((#limiter)),
        };
        let key = self.key.as_ref().map(|key| quote!(&(#key)));
        let cost = self.cost();
        quote!(#limiter.request(#key).cost(#cost))
    }

    fn cost(&self) -> TokenStream {
        let converted =
            |cost: &Expr| quote_spanned!(cost.span()=> ::tidegate::__limit::cost(#cost));
        self.cost.as_ref().map_or_else(|| quote!(1), converted)
    }

    /// Writes the admission of a single request.
    fn answer(&self, ask: &Ident, is_async: bool) -> TokenStream {
        let end = if is_async { quote!(acquire().await) } else { quote!(block()) };
        match (&self.wait, &self.limit) {
            (Some(wait), _) => quote!(#ask.within(#wait).#end),
            (None, Limit::Rule(_, Facts { waits: false, .. })) => quote!(#ask.try_acquire()),
            (None, _) => by(ask, is_async, "pass"),
        }
    }

    /// Writes one of several requests, with its maximum wait.
    fn want(&self, number: usize) -> TokenStream {
        let ask = self.ask(number);
        let within = |wait: &Wait| quote!(within(#ask, #wait));
        let verb = self.wait.as_ref().map_or_else(|| quote!(as_its_rule_says(#ask)), within);
        quote!(::tidegate::__limit::Want::#verb)
    }
}

/// Writes a call of a waiting function of the library: with `await`, or blocking the thread.
fn by(ask: &Ident, is_async: bool, name: &str) -> TokenStream {
    let name = if is_async { format_ident!("{name}") } else { format_ident!("{name}_blocking") };
    let end = is_async.then(|| quote!(.await));
    quote!(::tidegate::__limit::#name(#ask)#end)
}

/// Returns a name that the user's code cannot see.
fn ours(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

fn home(number: usize) -> Ident {
    format_ident!("__TIDEGATE_LIMIT_{number}")
}
