# docker build --target lbd --build-arg SOURCE_COMMIT="$(git describe --always --dirty --abbrev=12 --exclude='*')" -t lbd .
# Targets: lbd, and lbd-learn with Spark and Java for `lbd calibrate`. docker/install.sh is also what the tests run.

# An index of images for several architectures. Dependabot proposes the next one.
FROM python:3.13.15-slim-bookworm@sha256:ed86c82274b3c69b52fb5820f358f0bd7df0b603332063cb5c6e32bd220c3e6e AS base

FROM base AS source
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md CHANGELOG.md LICENSE ./
COPY docker docker
COPY lbd lbd

# Each stage names its arguments: not every builder hands them down from the stage that it begins with.
FROM source AS build
ARG SOURCE_COMMIT=""
RUN docker/install.sh . /opt/lbd

FROM source AS build-learn
ARG SOURCE_COMMIT=""
RUN docker/install.sh . /opt/lbd learn

FROM base AS runtime
# A name for the user: Spark asks for it. The state directory is its own, for those who mount no volume.
RUN groupadd --gid 10001 lbd \
    && useradd --uid 10001 --gid lbd --no-log-init --home-dir /var/lib/lbd --no-create-home --shell /usr/sbin/nologin lbd \
    && install --directory --owner lbd --group lbd /var/lib/lbd
ENV PATH=/opt/lbd/bin:$PATH \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/lbd
ENTRYPOINT ["lbd"]

FROM runtime AS lbd-learn
# Security updates of Java are wanted at each build, so no version is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-learn /opt/lbd /opt/lbd
ARG SOURCE_COMMIT=""
LABEL org.opencontainers.image.title="lbd-learn" \
      org.opencontainers.image.description="lbd with Spark, for lbd calibrate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${SOURCE_COMMIT}"
USER 10001:10001
CMD ["calibrate", "--help"]

FROM runtime AS lbd
COPY --from=build /opt/lbd /opt/lbd
ARG SOURCE_COMMIT=""
LABEL org.opencontainers.image.title="lbd" \
      org.opencontainers.image.description="A load balancer for Apache Pulsar's brokers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${SOURCE_COMMIT}"
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=20s --start-period=60s CMD ["lbd", "status"]
CMD ["run"]
