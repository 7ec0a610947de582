// All layers from one place: what most files import.
export * from './activation.js';
export * from './attention.js';
export * from './containers.js';
export * from './conv.js';
export * from './dropout.js';
export * from './linear.js';
export * from './norm.js';
export * from './pooling.js';
export * from './reshaping.js';
export * from './transformer.js';
