#!/usr/bin/env bash
# lbd calibrate on Kubernetes: executors are pods of IMAGE, the driver is where this runs, and --out is there, too.
#
#     MASTER=k8s://https://kubernetes.example:6443 IMAGE=registry.example/lbd-learn:0.1.0 \
#         ./submit.sh --history s3a://bucket/history --out calibration
#
# IMAGE holds Spark 4 with Java 17, and Python 3.11 with lbd; in a checkout of lbd, from an image of apache/spark, whose own
# Python is 3.10:
#
#     FROM apache/spark:4.0.1-scala2.13-java17-ubuntu
#     USER root
#     COPY . /src
#     RUN apt-get update && apt-get install -y python3.11-venv && python3.11 -m venv /opt/lbd \
#         && /opt/lbd/bin/pip install --no-cache-dir '/src[learn]' pyspark==4.0.1
#     USER spark
#
# Spark and PySpark must be of one version, and Python of one minor version, here and in the image; PYTHON is the image's,
# DRIVER_PYTHON the one here. DRIVER_HOST is a name or an address by which pods reach this machine.
set -euo pipefail
cd "$(dirname "$0")"

exec spark-submit \
    --master "${MASTER:?the address of Kubernetes, k8s://https://host:port}" \
    --deploy-mode client \
    --name lbd-calibrate \
    --conf "spark.kubernetes.container.image=${IMAGE:?an image with Spark 4 and lbd}" \
    --conf "spark.kubernetes.namespace=${NAMESPACE:-default}" \
    --conf "spark.executor.instances=${EXECUTORS:-2}" \
    --conf "spark.executor.memory=${EXECUTOR_MEMORY:-2g}" \
    --conf "spark.driver.host=${DRIVER_HOST:-$(hostname -f)}" \
    --conf "spark.pyspark.python=${PYTHON:-/opt/lbd/bin/python}" \
    --conf "spark.pyspark.driver.python=${DRIVER_PYTHON:-python3}" \
    job.py calibrate "$@"
