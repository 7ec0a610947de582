# wick serve on NVIDIA GPUs. Build from the repository's root:
#   docker build -f deploy/cuda.Dockerfile -t wick:cuda .
#   docker run --gpus all -p 127.0.0.1:8080:8080 -e WICK_API_KEYS=a-key-of-yours \
#     -v models:/models -v cache:/home/wick/.cache/wick wick:cuda --model owner/name
# The driver comes from the host (NVIDIA's container toolkit); the image brings NVRTC and cuBLAS. /models keeps what is
# downloaded, the cache what is compiled for the GPU.
ARG NODE=node:22-bookworm-slim
ARG BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04

FROM ${NODE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /wick
COPY . .
# The CPU engine for every instruction set, as the package that npm would bring: whoever runs the image may have another
# processor than whoever builds it, and no compiler.
RUN npm ci && npm prune --omit=dev && node dist/scripts/release-engine.js --out node_modules

FROM ${NODE} AS node
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends cuda-nvrtc-12-8 && rm -rf /var/lib/apt/lists/* \
  && useradd --uid 10001 --create-home wick \
  && mkdir -p /models /home/wick/.cache/wick && chown -R wick /models /home/wick/.cache
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=build /wick /wick
USER wick
ENV HF_HOME=/models
EXPOSE 8080
HEALTHCHECK --start-period=300s CMD ["node", "-e", "fetch('http://127.0.0.1:8080/health').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "/wick/dist/src/cli/main.js", "serve", "--host", "0.0.0.0"]
