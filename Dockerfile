# The image of flow runs on Kubernetes, and of a worker anywhere: this project with everything it needs, no data.
#   docker build -t registry.example.org/electra:1 .
FROM python:3.11-slim-bookworm

# git: a run clones the repository. g++: DeepSpeed compiles an op on CPUs. tini: reaps and passes signals on as process 1.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home electra

WORKDIR /opt/electra
COPY --chown=electra:electra pyproject.toml constraints.txt README.md LICENSE ./
COPY --chown=electra:electra electra ./electra
COPY --chown=electra:electra flows ./flows
RUN pip install --no-cache-dir -c constraints.txt -e . dvc-s3

ENV DO_NOT_TRACK=1 \
    DVC_NO_ANALYTICS=1 \
    GX_ANALYTICS_ENABLED=False \
    HF_HUB_DISABLE_TELEMETRY=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    TORCH_EXTENSIONS_DIR=/home/electra/torch_extensions

USER electra
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["electra", "cluster", "worker"]
