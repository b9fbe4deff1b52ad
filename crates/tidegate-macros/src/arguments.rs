//! The arguments of the attribute: a rule or a limiter, and options.
//!
//! Always   The rule is first, and each option occurs at most once. The error for an unknown option lists the known ones.

use crate::rule::{self, Facts};
use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Token};

/// One `#[limit(…)]`.
pub(crate) struct Arguments {
    pub(crate) limit: Limit,
    pub(crate) key: Option<Expr>,
    pub(crate) cost: Option<Expr>,
    pub(crate) wait: Option<Wait>,
    pub(crate) otherwise: Option<Expr>,
}

pub(crate) enum Limit {
    /// A rule: the function has its own limiter.
    Rule(LitStr, Facts),
    /// An existing limiter.
    By(Expr),
}

/// The longest wait of a call.
pub(crate) enum Wait {
    Micros(u64),
    Given(Expr),
}

const OPTIONS: &str = "`by`, `key`, `cost`, `wait` and `else`";
const EXAMPLE: &str = "`#[limit(\"100/s burst 20\")]`";

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() {
            let what = format!("a rule is needed, such as {EXAMPLE}");
            return Err(syn::Error::new(Span::call_site(), what));
        }
        let rule = first(input)?;
        let mut options = Options::default();
        while !input.is_empty() {
            options.read(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let Options { by, key, cost, wait, otherwise } = options;
        let limit = match (rule, by) {
            (Some((text, facts)), None) => Limit::Rule(text, facts),
            (None, Some(limiter)) => Limit::By(limiter),
            (Some(_), Some(limiter)) => {
                let what = "a limiter has its own rule: leave out either the rule or `by`";
                return Err(syn::Error::new(limiter.span(), what));
            }
            (None, None) => {
                let what = format!("a rule is needed first, such as {EXAMPLE}; or `by = …`");
                return Err(syn::Error::new(Span::call_site(), what));
            }
        };
        Ok(Self { limit, key, cost, wait, otherwise })
    }
}

/// Returns the rule, if it is the first argument.
fn first(input: ParseStream<'_>) -> syn::Result<Option<(LitStr, Facts)>> {
    if input.peek(Ident::peek_any) && input.peek2(Token![=]) {
        return Ok(None);
    }
    let expression = expression(input)?;
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = expression else {
        let what = format!(
            "a rule is a string literal, such as {EXAMPLE}; for a limiter that is created at run time, write \
             `by = …`"
        );
        return Err(syn::Error::new(expression.span(), what));
    };
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    let facts = rule::read(&text)?;
    Ok(Some((text, facts)))
}

/// Returns an expression without the invisible delimiters that `macro_rules!` adds to fragments.
fn expression(input: ParseStream<'_>) -> syn::Result<Expr> {
    let mut expression: Expr = input.parse()?;
    while let Expr::Group(group) = expression {
        expression = *group.expr;
    }
    Ok(expression)
}

#[derive(Default)]
struct Options {
    by: Option<Expr>,
    key: Option<Expr>,
    cost: Option<Expr>,
    wait: Option<Wait>,
    otherwise: Option<Expr>,
}

impl Options {
    fn read(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let name = input.call(Ident::parse_any).map_err(|error| {
            syn::Error::new(error.span(), format!("after the rule come {OPTIONS}, each once"))
        })?;
        let is_known = ["by", "key", "cost", "wait", "else"].iter().any(|known| name == known);
        if !is_known {
            let what = format!("unknown option `{name}`: there are {OPTIONS}");
            return Err(syn::Error::new(name.span(), what));
        }
        input.parse::<Token![=]>()?;
        let value = expression(input)?;
        let is_new = match name.to_string().as_str() {
            "by" => self.by.replace(value).is_none(),
            "key" => self.key.replace(value).is_none(),
            "cost" => self.cost.replace(value).is_none(),
            "wait" => self.wait.replace(Wait::read(value)?).is_none(),
            _ => self.otherwise.replace(value).is_none(),
        };
        if is_new {
            return Ok(());
        }
        Err(syn::Error::new(name.span(), format!("`{name}` is given twice")))
    }
}

impl Wait {
    fn read(value: Expr) -> syn::Result<Self> {
        match &value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                Ok(Self::Micros(rule::read_span(text)?.as_micros()))
            }
            Expr::Lit(_) => {
                let what = "a time has a unit: write `wait = \"1s\"`";
                Err(syn::Error::new(value.span(), what))
            }
            _ => Ok(Self::Given(value)),
        }
    }
}

impl ToTokens for Wait {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(match self {
            Self::Micros(us) => quote::quote!(::tidegate::Span::from_micros(#us)),
            Self::Given(value) => quote::quote!(::tidegate::Span::from(#value)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        syn::parse_str::<Arguments>(text).err().map_or("read".to_owned(), |error| error.to_string())
    }

    #[test]
    fn options_come_in_any_order() {
        let all = "\"20/s\", else = None, wait = \"1s\", cost = 2 + body.len(), key = (a, &b),";
        let arguments = syn::parse_str::<Arguments>(all).unwrap();
        assert!(matches!(arguments.wait, Some(Wait::Micros(1_000_000))));
        assert!(arguments.key.is_some() && arguments.cost.is_some());
        assert!(arguments.otherwise.is_some());
        assert!(syn::parse_str::<Arguments>("by = self.gate, wait = patience").is_ok());
    }

    #[test]
    fn an_error_says_what_is_expected() {
        let cases = [
            ("", "a rule is needed, such as `#[limit(\"100/s burst 20\")]`"),
            ("20", "a rule is a string literal"),
            ("RULE", "a rule is a string literal"),
            ("key = a", "a rule is needed first"),
            ("\"20/s\", \"30/s\"", "after the rule come `by`, `key`"),
            ("\"20/s\", ky = a", "unknown option `ky`: there are `by`, `key`, `cost`"),
            ("\"20/s\", key = a, key = b", "`key` is given twice"),
            ("\"20/s\", by = GATE", "a limiter has its own rule"),
            ("\"20/s\", wait = 1", "a time has a unit: write `wait = \"1s\"`"),
            ("\"20/s\", wait = \"1 m\"", "there must be no space before a unit: write `1min`"),
            ("\"20/s\" key = a", "expected `,`"),
        ];
        for (text, expected) in cases {
            let message = refused(text);
            assert!(message.starts_with(expected), "{text}: {message}");
        }
    }
}
