// The part of pngjs that reading a picture needs; the package brings no types.
declare module 'pngjs' {
  export const PNG: {
    readonly sync: {
      /** Of 16 bits a channel that are not rescaled the data is of 16 bits, too. */
      read(
        bytes: Uint8Array,
        options?: { readonly skipRescale: boolean },
      ): { readonly width: number; readonly height: number; readonly data: Uint8Array | Uint16Array };
    };
  };
}
