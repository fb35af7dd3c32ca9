//! `#[analyzer]` turns an `impl Analyzer for …` into the symbols that QEMU calls; `#[helper]` a function into one that emitted code can
//! call.
//!
//! Expand, validate, generate: the impl stays as it was written; beside it stand `extern "C"` functions, one per method that is
//! written there, so that the archive's symbols say which points are filled.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, ImplItem, ItemImpl, parse_macro_input};

/// The points that can be filled, and the C parameters of their symbols (`instrument/include/trapline.h`): names and types.
const POINTS: [(&str, &str); 18] = [
    ("fetch", "insn: *const TraplineInsn, point: *mut TraplinePoint"),
    ("mem", "access: *const TraplineAccess, point: *mut TraplinePoint"),
    ("vcpu_start", "vcpu: *mut TraplineVcpu"),
    ("vcpu_exit", "vcpu: *mut TraplineVcpu, code: i32"),
    ("fork", "vcpu: *mut TraplineVcpu, pid: i32"),
    ("exec", "vcpu: *mut TraplineVcpu, path: *const c_char"),
    ("exit", "vcpu: *mut TraplineVcpu, reason: i32, code: i32"),
    ("syscall", "vcpu: *mut TraplineVcpu, pc: u64, number: i64, args: *const u64"),
    ("syscall_ret", "vcpu: *mut TraplineVcpu, number: i64, result: i64"),
    ("kernel_access", "vcpu: *mut TraplineVcpu, addr: u64, length: u64, flags: u32"),
    ("signal", "vcpu: *mut TraplineVcpu, number: i32, from: u64, to: u64"),
    ("exception", "vcpu: *mut TraplineVcpu, number: i32, from: u64, to: u64"),
    ("interrupt", "vcpu: *mut TraplineVcpu, number: i32, from: u64, to: u64"),
    ("context", "vcpu: *mut TraplineVcpu, root: u64, asid: u64"),
    ("mmap", "vcpu: *mut TraplineVcpu, addr: u64, length: u64, prot: i32, flags: i32, offset: u64, fd: i32"),
    ("munmap", "vcpu: *mut TraplineVcpu, addr: u64, length: u64"),
    ("mprotect", "vcpu: *mut TraplineVcpu, addr: u64, length: u64, prot: i32"),
    ("image", "vcpu: *mut TraplineVcpu, entry: u64, bias: u64, brk: u64, path: *const c_char"),
];

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
    let filled: Vec<_> = POINTS.iter().filter(|(p, _)| methods.iter().any(|m| m.ident == p)).collect();
    let names = filled.iter().map(|(p, _)| p);
    let points = filled.iter().map(|(point, params)| {
        let (symbol, point) = (format_ident!("trapline_point_{point}"), format_ident!("{point}"));
        let params: Vec<syn::FnArg> = parse_params(params);
        let args: Vec<_> =
            params.iter().filter_map(|p| if let syn::FnArg::Typed(p) = p { Some(&p.pat) } else { None }).collect();
        quote! {
            #[unsafe(no_mangle)]
            unsafe extern "C" fn #symbol(#(#params),*) {
                // SAFETY: QEMU passes pointers that are valid for the call.
                #[allow(unused_unsafe)]
                unsafe { ::instrument::hook::#point::<#ty>(#(#args),*) }
            }
        }
    });
    Ok(quote! {
        #item

        const _: () = {
            #[allow(unused_imports)]
            use ::core::ffi::c_char;
            #[allow(unused_imports)]
            use ::instrument::ffi::{TraplineAccess, TraplineInsn, TraplinePoint, TraplineVcpu};
            #[unsafe(no_mangle)]
            fn trapline_analyzer_new(qemu: &::instrument::Qemu) {
                ::instrument::hook::new::<#ty>(qemu);
            }
            #[unsafe(no_mangle)]
            fn trapline_analyzer_backdoor(vcpu: &mut ::instrument::Vcpu, call: ::instrument::Call<'_>) -> u64 {
                ::instrument::hook::backdoor::<#ty>(vcpu, call)
            }
            #[unsafe(no_mangle)]
            static TRAPLINE_ANALYZER_NAME: &str = env!("CARGO_PKG_NAME");
            #[unsafe(no_mangle)]
            static TRAPLINE_ANALYZER_VERSION: &str = env!("CARGO_PKG_VERSION");
            #[unsafe(no_mangle)]
            static TRAPLINE_ANALYZER_POINTS: &[&str] = &[#(#names),*];
            #(#points)*
        };
    })
}

/// Parameters as text to tokens.
fn parse_params(text: &str) -> Vec<syn::FnArg> {
    use syn::parse::Parser;
    let parser = syn::punctuated::Punctuated::<syn::FnArg, syn::Token![,]>::parse_terminated;
    // The texts are the constants above.
    parser.parse_str(text).expect("parameters").into_iter().collect()
}

/// The types that a helper's parameters can have, and how many 64-bit words each takes.
const PARAMS: [(&str, usize); 4] = [("u64", 1), ("u32", 1), ("bool", 1), ("u128", 2)];

/// Makes of a function one that emitted code can call: pass its name to `call` at a point.
///
/// Its parameters are first, if it wants to look at the vCPU, `&Vcpu` or (to change something) `&mut Vcpu`, then up to six of
/// `u64`, `u32`, `bool` and `u128` (which takes the room of two). It returns nothing.
#[proc_macro_attribute]
pub fn helper(args: TokenStream, item: TokenStream) -> TokenStream {
    if !args.is_empty() {
        return Error::new(Tokens::from(args).span(), "#[helper] takes no arguments").to_compile_error().into();
    }
    let item = parse_macro_input!(item as syn::ItemFn);
    expand_helper(&item).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// Whether the type is a reference to a path that ends in `Vcpu`, and if so whether it may be changed.
fn vcpu_param(ty: &syn::Type) -> Option<bool> {
    let syn::Type::Reference(r) = ty else { return None };
    let syn::Type::Path(p) = &*r.elem else { return None };
    p.path.segments.last().is_some_and(|s| s.ident == "Vcpu").then_some(r.mutability.is_some())
}

fn expand_helper(item: &syn::ItemFn) -> Result<Tokens, Error> {
    let sig = &item.sig;
    if !sig.generics.params.is_empty() {
        return Err(Error::new(sig.generics.span(), "a helper cannot be generic: emitted code calls one function"));
    }
    if let Some(a) = &sig.asyncness {
        return Err(Error::new(a.span(), "a helper cannot be async: emitted code waits for nobody"));
    }
    if let syn::ReturnType::Type(_, ty) = &sig.output {
        return Err(Error::new(ty.span(), "a helper returns nothing: there is nobody to take the value"));
    }
    let mut vcpu = None;
    let mut types = Vec::new();
    let mut words = 0;
    for (i, param) in sig.inputs.iter().enumerate() {
        let syn::FnArg::Typed(param) = param else {
            return Err(Error::new(param.span(), "a helper is a function of its own, not a method"));
        };
        if let Some(mutable) = vcpu_param(&param.ty) {
            if i != 0 {
                return Err(Error::new(param.ty.span(), "the vCPU comes first"));
            }
            vcpu = Some(mutable);
            continue;
        }
        let known = match &*param.ty {
            syn::Type::Path(p) => PARAMS.iter().find(|(name, _)| p.path.is_ident(name)),
            _ => None,
        };
        let Some((name, n)) = known else {
            return Err(Error::new(
                param.ty.span(),
                "a helper's parameters are `&Vcpu` or `&mut Vcpu` first, then u64, u32, bool or u128",
            ));
        };
        words += n;
        if words > 6 {
            return Err(Error::new(param.ty.span(), "a helper takes at most six words beside the vCPU; a u128 is two"));
        }
        types.push((*name, &param.ty));
    }

    let (name, vis, attrs) = (&sig.ident, &item.vis, &item.attrs);
    let inner = syn::ItemFn { vis: syn::Visibility::Inherited, attrs: Vec::new(), ..item.clone() };
    let (docs, others): (Vec<_>, Vec<_>) = attrs.iter().partition(|a| a.path().is_ident("doc"));
    let all: Vec<_> = (0..words).map(|i| format_ident!("word{i}")).collect();
    let mut at = 0;
    let values = types.iter().map(|(ty, _)| {
        let low = &all[at];
        let value = match *ty {
            "u64" => quote!(#low),
            "u32" => quote!(#low as u32),
            "bool" => quote!(#low != 0),
            _ => {
                let high = &all[at + 1];
                quote!(u128::from(#low) | u128::from(#high) << 64)
            }
        };
        at += if *ty == "u128" { 2 } else { 1 };
        value
    });
    let flags = match vcpu {
        None => quote!(0),
        Some(false) => quote!(::instrument::ffi::TRAPLINE_ACTION_READS),
        Some(true) => {
            quote!(::instrument::ffi::TRAPLINE_ACTION_READS | ::instrument::ffi::TRAPLINE_ACTION_WRITES)
        }
    };
    let first = match vcpu {
        None => quote!(),
        Some(false) => quote!(&*vcpu.cast::<::instrument::Vcpu>(),),
        Some(true) => quote!(&mut *vcpu.cast::<::instrument::Vcpu>(),),
    };
    let looks = vcpu.is_some();
    let types = types.iter().map(|(_, ty)| ty);
    let text = name.to_string();
    Ok(quote! {
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        #vis struct #name;

        impl ::instrument::Helper for #name {
            type Params = (#(#types,)*);
            const FLAGS: u32 = #flags;
            fn entry(self) -> *mut ::core::ffi::c_void {
                #(#others)*
                #inner
                unsafe extern "C" fn entry(vcpu: *mut ::instrument::ffi::TraplineVcpu #(, #all: u64)*) {
                    let seen = if #looks { vcpu.cast_const() } else { ::core::ptr::null() };
                    // SAFETY: emitted code passes the vCPU that runs; `Vcpu` has its layout.
                    #[allow(clippy::undocumented_unsafe_blocks)]
                    unsafe { ::instrument::hook::helper(#text, seen, || #name(#first #(#values),*)) }
                }
                entry as *mut ::core::ffi::c_void
            }
        }
    })
}
