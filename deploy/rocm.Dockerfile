# wick serve on AMD GPUs. Build from the repository's root:
#   docker build -f deploy/rocm.Dockerfile -t wick:rocm .
#   docker run --device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined \
#     --group-add $(getent group video | cut -d: -f3) --group-add $(getent group render | cut -d: -f3) \
#     -p 127.0.0.1:8080:8080 -e WICK_API_KEYS=a-key-of-yours \
#     -v models:/models -v cache:/home/wick/.cache/wick wick:rocm --model owner/name
# The image brings HIP, hipRTC, comgr, hipBLASLt and rocBLAS; the kernel driver (amdgpu) is the host's, and so are the
# numbers of the groups that may open its devices: the image's groups of the same names have others. /models keeps what
# is downloaded, the cache what is compiled for the GPU.
ARG NODE=node:22-bookworm-slim
ARG BASE=rocm/dev-ubuntu-24.04:7.0-complete

FROM ${NODE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /wick
COPY . .
# The CPU engine for every instruction set, as the package that npm would bring: whoever runs the image may have another
# processor than whoever builds it, and no compiler.
RUN npm ci && npm prune --omit=dev && node dist/scripts/release-engine.js --out node_modules

FROM ${NODE} AS node
FROM ${BASE}
RUN useradd --uid 10001 --create-home wick \
  && mkdir -p /models /home/wick/.cache/wick && chown -R wick /models /home/wick/.cache
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=build /wick /wick
USER wick
ENV HF_HOME=/models
EXPOSE 8080
HEALTHCHECK --start-period=300s CMD ["node", "-e", "fetch('http://127.0.0.1:8080/health').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "/wick/dist/src/cli/main.js", "serve", "--host", "0.0.0.0"]
