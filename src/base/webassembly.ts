// WebAssembly of the JavaScript engine, typed here because Node's type library leaves it to the DOM's.

export interface WasmMemory {
  readonly buffer: ArrayBufferLike;
  grow(pages: number): number;
}
export type WasmModule = object;
export interface WasmGlobal<T = bigint> {
  value: T;
}
export type WasmImports = Record<string, Record<string, unknown>>;

interface Namespace {
  readonly Memory: new (d: { initial: number; maximum: number; shared: boolean }) => WasmMemory;
  readonly Module: {
    new (bytes: Uint8Array<ArrayBuffer>): WasmModule;
    imports(module: WasmModule): { readonly module: string; readonly name: string }[];
  };
  readonly RuntimeError: new () => Error;
  readonly Instance: new (m: WasmModule, imports: WasmImports) => { readonly exports: Record<string, unknown> };
}
export const Wasm = (globalThis as unknown as { WebAssembly: Namespace }).WebAssembly;
