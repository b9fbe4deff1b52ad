//! The annotated function, and the check whether it can have a limit.
//!
//! Always   The body is not parsed but passed on unchanged, so incomplete code keeps its own errors.

use crate::arguments::Arguments;
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, GenericArgument, Path, PathArguments, ReturnType, Signature, Type, Visibility,
};
use syn::{Meta, TypeParamBound};

pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    /// `#![…]` at the start of the body.
    pub(crate) inner: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// With its braces.
    pub(crate) body: TokenStream,
}

const PLACE: &str = "`#[limit]` goes on a function with a body";

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature: Signature =
            input.parse().map_err(|_| syn::Error::new(Span::call_site(), PLACE))?;
        if input.peek(syn::Token![;]) {
            let what = format!("{PLACE}: put it on each `impl` of `{}`", signature.ident);
            return Err(syn::Error::new(signature.span(), what));
        }
        let block = braces(input.parse()?)?;
        let (inner, rest) = syn::parse::Parser::parse2(inner_and_rest, block.stream())?;
        let mut body = Group::new(Delimiter::Brace, rest);
        // The braces get the macro's span, so that a lint about braces ignores a body on one line.
        body.set_span(Span::mixed_site().located_at(block.span()));
        let body = TokenTree::Group(body).into();
        Ok(Self { attributes, inner, visibility, signature, body })
    }
}

/// Returns the body without the invisible delimiters that `macro_rules!` adds to a block.
fn braces(body: TokenTree) -> syn::Result<Group> {
    match body {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Ok(group),
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            braces(syn::parse2(group.stream())?)
        }
        other => Err(syn::Error::new(other.span(), PLACE)),
    }
}

fn inner_and_rest(input: ParseStream<'_>) -> syn::Result<(Vec<Attribute>, TokenStream)> {
    Ok((input.call(Attribute::parse_inner)?, input.parse()?))
}

impl Function {
    /// Removes and returns the other `#[limit]` attributes, which are decided together.
    pub(crate) fn take_limits(&mut self) -> syn::Result<Vec<Arguments>> {
        let (limits, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.attributes).into_iter().partition(|a| is_limit(a.path()));
        self.attributes = others;
        limits.iter().map(arguments).collect()
    }

    /// Returns an error if a limit on this function would not work as its reader expects.
    pub(crate) fn check(&self) -> syn::Result<()> {
        let signature = &self.signature;
        if let Some(constant) = &signature.constness {
            let what =
                "a `const fn` can be called at compile time, where there is no time and no limiter";
            return Err(syn::Error::new(constant.span(), what));
        }
        if let Some(abi) = &signature.abi {
            let what = "an `extern` function is called from outside of Rust: limit a Rust function, and call it \
                        from this one";
            return Err(syn::Error::new(abi.span(), what));
        }
        if signature.ident == "main" && signature.inputs.is_empty() {
            let what = "`main` is called once: limit a function that is called often";
            return Err(syn::Error::new(signature.ident.span(), what));
        }
        match &signature.output {
            ReturnType::Type(_, output) if is_future(output) => {
                let what = "this returns a future: the limit would be checked when it is created, not when it runs. \
                            Make it an `async fn`, or limit an `async fn` that it calls";
                Err(syn::Error::new(output.span(), what))
            }
            _ => Ok(()),
        }
    }

    /// Returns the position of the return type, or of the name if there is none.
    pub(crate) fn output_span(&self) -> Span {
        match &self.signature.output {
            ReturnType::Default => self.signature.ident.span(),
            ReturnType::Type(_, output) => output.span(),
        }
    }

    /// Returns whether the return type is `impl Trait`, for which no value of a denial is known.
    pub(crate) fn has_opaque_output(&self) -> bool {
        matches!(&self.signature.output, ReturnType::Type(_, output) if matches!(**output, Type::ImplTrait(_)))
    }
}

/// Returns whether a path is `limit` or `tidegate::limit`.
fn is_limit(path: &Path) -> bool {
    let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
    matches!(
        names.iter().map(String::as_str).collect::<Vec<_>>()[..],
        ["limit"] | ["tidegate", "limit"]
    )
}

fn arguments(attribute: &Attribute) -> syn::Result<Arguments> {
    match &attribute.meta {
        // The same message as for a first attribute without arguments.
        Meta::Path(path) => syn::parse2(TokenStream::new())
            .map_err(|error: syn::Error| syn::Error::new(path.span(), error)),
        _ => attribute.parse_args(),
    }
}

/// Returns whether a type is a future, such as `impl Future` or `Pin<Box<dyn Future>>`, judged by its name.
fn is_future(output: &Type) -> bool {
    match output {
        Type::ImplTrait(opaque) => opaque.bounds.iter().any(is_future_bound),
        Type::TraitObject(object) => object.bounds.iter().any(is_future_bound),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let inner = match &last.arguments {
                PathArguments::AngleBracketed(inner) => inner.args.first(),
                _ => None,
            };
            match inner {
                Some(GenericArgument::Type(inner)) => {
                    ["Pin", "Box"].iter().any(|name| last.ident == name) && is_future(inner)
                }
                _ => last.ident == "BoxFuture",
            }
        }),
        _ => false,
    }
}

fn is_future_bound(bound: &TypeParamBound) -> bool {
    matches!(bound, TypeParamBound::Trait(bound)
        if bound.path.segments.last().is_some_and(|last| last.ident == "Future"))
}
