"""Adapter between the engine and Faust."""

from skewless.engine.faust.http_client_import import import_without_http_client

import_without_http_client()  # before the modules of this package import Faust
