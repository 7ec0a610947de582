// The part of pngjs that reading a picture needs; the package brings no types.
declare module 'pngjs' {
  export const PNG: {
    readonly sync: {
      read(bytes: Uint8Array): { readonly width: number; readonly height: number; readonly data: Uint8Array };
    };
  };
}
