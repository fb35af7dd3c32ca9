//! `#[analyzer]`: turns an `impl Analyzer for …` into the symbols that QEMU calls.
//!
//! Expand, validate, generate: the impl stays as it was written; beside it stand `extern "C"` functions, one per method that is
//! written there, so that the archive's symbols say which points are filled.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, ImplItem, ItemImpl, parse_macro_input};

/// The points that can be filled: method, and the C parameters that its symbol takes.
const POINTS: [(&str, &str); 2] = [("fetch", "TraplineInsn"), ("mem", "TraplineAccess")];

/// A method that is no point in translated code: QEMU calls it through the runtime.
const BACKDOOR: &str = "backdoor";

/// Put it on the one `impl Analyzer for T` of an analyzer. Only the methods written there become points.
#[proc_macro_attribute]
pub fn analyzer(args: TokenStream, item: TokenStream) -> TokenStream {
    if !args.is_empty() {
        return Error::new(Tokens::from(args).span(), "#[analyzer] takes no arguments").to_compile_error().into();
    }
    let item = parse_macro_input!(item as ItemImpl);
    expand(&item)
        .unwrap_or_else(|e| {
            let e = e.to_compile_error();
            quote!(#e #item)
        })
        .into()
}

fn expand(item: &ItemImpl) -> Result<Tokens, Error> {
    let trait_ok = item
        .trait_
        .as_ref()
        .is_some_and(|(not, path, _)| not.is_none() && path.segments.last().is_some_and(|s| s.ident == "Analyzer"));
    if !trait_ok {
        return Err(Error::new(
            item.self_ty.span(),
            "#[analyzer] belongs on the implementation of the trait: `impl Analyzer for MyType { … }`",
        ));
    }
    if !item.generics.params.is_empty() {
        return Err(Error::new(item.generics.span(), "an analyzer cannot be generic: QEMU calls one concrete type"));
    }
    let methods: Vec<_> =
        item.items.iter().filter_map(|i| if let ImplItem::Fn(f) = i { Some(&f.sig) } else { None }).collect();
    if !methods.iter().any(|m| m.ident == "new") {
        return Err(Error::new(
            item.self_ty.span(),
            "an analyzer needs `fn new(qemu: &Qemu) -> Self`: it is called once when QEMU starts",
        ));
    }
    for m in &methods {
        if m.ident != "new" && m.ident != BACKDOOR && !POINTS.iter().any(|(p, _)| m.ident == p) {
            let known: Vec<_> = POINTS.iter().map(|(p, _)| *p).chain([BACKDOOR]).map(|p| format!("`{p}`")).collect();
            return Err(Error::new(
                m.ident.span(),
                format!("no point `{}`; an analyzer can have `new`, {}", m.ident, known.join(", ")),
            ));
        }
    }

    let ty = &item.self_ty;
    let points = POINTS.iter().filter(|(p, _)| methods.iter().any(|m| m.ident == p)).map(|(point, arg)| {
        let (symbol, point, arg) =
            (format_ident!("trapline_point_{point}"), format_ident!("{point}"), format_ident!("{arg}"));
        quote! {
            #[unsafe(no_mangle)]
            unsafe extern "C" fn #symbol(
                subject: *const ::instrument::ffi::#arg,
                point: *mut ::instrument::ffi::TraplinePoint,
            ) {
                // SAFETY: QEMU passes pointers that are valid for the call.
                unsafe { ::instrument::hook::#point::<#ty>(subject, point) }
            }
        }
    });
    Ok(quote! {
        #item

        const _: () = {
            #[unsafe(no_mangle)]
            fn trapline_analyzer_new(qemu: &::instrument::Qemu) {
                ::instrument::hook::new::<#ty>(qemu);
            }
            #[unsafe(no_mangle)]
            fn trapline_analyzer_backdoor(vcpu: &mut ::instrument::Vcpu<'_>, call: ::instrument::Call<'_>) -> u64 {
                ::instrument::hook::backdoor::<#ty>(vcpu, call)
            }
            #[unsafe(no_mangle)]
            static TRAPLINE_ANALYZER_NAME: &str = env!("CARGO_PKG_NAME");
            #(#points)*
        };
    })
}
