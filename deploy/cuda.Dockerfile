# wick serve on NVIDIA GPUs. Build from the repository's root:
#   docker build -f deploy/cuda.Dockerfile -t wick:cuda .
#   docker run --gpus all -p 127.0.0.1:8080:8080 -e WICK_API_KEYS=a-key-of-yours -v models:/models wick:cuda --model owner/name
# The driver comes from the host (NVIDIA's container toolkit); the image brings NVRTC and cuBLAS.
ARG NODE=node:22-bookworm-slim
ARG BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04

FROM ${NODE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /wick
ENV WICK_CACHE_DIR=/cache
COPY . .
RUN npm ci && npm prune --omit=dev

FROM ${NODE} AS node
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends cuda-nvrtc-12-8 && rm -rf /var/lib/apt/lists/* \
  && useradd --uid 10001 --create-home wick && mkdir /models && chown wick /models
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=build /wick /wick
COPY --from=build --chown=wick /cache /home/wick/.cache/wick
USER wick
ENV HF_HOME=/models
EXPOSE 8080
HEALTHCHECK --start-period=300s CMD ["node", "-e", "fetch('http://127.0.0.1:8080/health').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "/wick/dist/src/cli/main.js", "serve", "--host", "0.0.0.0"]
